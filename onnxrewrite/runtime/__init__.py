"""Running models and parts of them: limited in time, bounded in memory; it measures nothing and judges nothing."""
