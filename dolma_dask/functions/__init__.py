"""Functions of users: found by name (`places`), known by their source (`digest`), sent to workers and blamed for what they raise (`calls`)."""
