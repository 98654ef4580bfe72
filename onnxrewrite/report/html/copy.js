// Buttons that copy the text of an element; where the clipboard is closed to us, they select it.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const name = button.textContent;
  const select = () => getSelection().selectAllChildren(source);
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      select();
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = name), 2000);
  });
}
