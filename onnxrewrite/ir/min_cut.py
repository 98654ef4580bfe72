"""The cheapest way to divide the vertices of a network in two, explored no further than it takes to know.

networkx has minimum cuts of networks that lie there complete.  Here the network is told vertex by vertex, for most of
the time the question is whether any other division is cheaper than a trivial one, and a few vertices answer it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable
from itertools import pairwise

Edge = tuple[Hashable, Hashable, int | None]
"""The cost of having the first vertex on the side of the source and the second on the sink's; None forbids it."""

_FORBIDDEN = 1 << 62


class Cut:
    """A cheapest division of the vertices of a network, found by augmenting paths.

    Every path that flow takes shows costs that no division avoids.  To leave all vertices with the source costs what
    lies between them and the sink.  Where flow fills that, it is as cheap as any division; where it cannot, the
    vertices that could pass on more flow are cheaper on the other side.   Ford & Fulkerson, 1956; the shortest paths
    first: Edmonds & Karp, 1972.

    Args:
        source: The vertex of one side.
        sink: The vertex of the other.
        costs: The costs that concern a vertex; asked for once a vertex, when it is come to.  Costs between the same
            two vertices add up, so that one told for one of them is not told again for the other.
        few: So many vertices may be known while more is looked for that speaks for dividing.
    """

    def __init__(self, source: Hashable, sink: Hashable, costs: Callable[[Hashable], Iterable[Edge]], *, few: int = 48):
        self._source, self._sink, self._costs, self._few = source, sink, costs, few
        self._room: defaultdict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        self._explored: set[Hashable] = {source, sink}
        self._last: list[Hashable] = []

    def far_side(self, start: Hashable) -> set[Hashable]:
        """The side of the sink in a cheapest division, as far as can be seen from a vertex; empty where it is trivial.

        Seen are the costs met on the way from there to the source, and a few around what they have in common with
        others.  So what is found is cheaper, but what is farther away may be missed.  Where something can be saved,
        all that hangs together with it and costs no more goes along.
        """
        self._come_to(start)
        candidates = [v for v in self._last if self._is_avoidable(v)]  # which gets longer meanwhile
        far: set[Hashable] = set()
        near = {self._source, self._sink}
        for vertex in candidates:
            if vertex in far or vertex in near:
                continue
            path, behind = self._search(vertex, near)
            if path:
                near.update(path)
            else:
                far.update(behind)
                candidates.extend(n for v in behind for n in self._room[v])
        return far

    def _come_to(self, vertex: Hashable) -> None:
        if vertex in self._explored:
            return
        self._explored.add(vertex)
        for tail, head, cost in self._costs(vertex):
            forward, back = self._room[tail], self._room[head]
            forward[head] = forward.get(head, 0) + (_FORBIDDEN if cost is None else cost)
            back.setdefault(tail, 0)
            if cost != 0 and head == self._sink and tail != self._source:
                self._last.append(tail)

    def _is_avoidable(self, last: Hashable) -> bool:
        """True if the edge from a vertex to the sink has residual capacity at maximum flow."""
        while self._room[last][self._sink]:
            path, _ = self._search(last, {self._source, self._sink})
            if not path:
                return True
            edges = list(pairwise((*path, self._sink)))
            flow = min(self._room[tail][head] for tail, head in edges)
            for tail, head in edges:
                self._room[tail][head] -= flow
                self._room[head][tail] += flow
            self._look_on(next(head for tail, head in edges if not self._room[tail][head]))
        return False

    def _look_on(self, filled: Hashable) -> None:
        """Come to those who need what flow has filled as well and may be worth it together, while few are known."""
        queue = [filled]
        seen = {self._source, self._sink, filled}
        for vertex in queue:
            if vertex == self._sink or len(self._explored) > self._few:
                return
            self._come_to(vertex)
            onward = [v for v, room in self._room[vertex].items() if room and v not in seen]
            seen.update(onward)
            queue.extend(onward)

    def _search(self, last: Hashable, near: Container[Hashable]) -> tuple[list[Hashable], set[Hashable]]:
        """A path with room to ``last`` from a vertex of ``near``, where there is none empty; and what was come to."""
        onward: dict[Hashable, Hashable] = {last: None}
        queue, given = [last], self._room[self._source]
        for head in queue:
            self._come_to(head)
            behind = [v for v in self._room[head] if v != self._sink and v not in onward and self._room[v][head]]
            onward.update(dict.fromkeys(behind, head))
            first = next((v for v in behind if v in near or given.get(v)), None)
            if first is not None:
                path = [first] if first in near else [self._source, first]
                while path[-1] != last:
                    path.append(onward[path[-1]])
                return path, set(onward)
            queue.extend(behind)
        return [], set(onward)
