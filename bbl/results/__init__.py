"""Results: what the verbs return; frozen, their methods only arrange what the rooms below compute."""
