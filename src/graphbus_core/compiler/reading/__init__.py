"""Source text -> facts about agents, without importing or running anything."""
