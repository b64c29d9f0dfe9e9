"""Questions about a cluster profile: the script of its jobs (`verb`), and what one small job finds (`probe` there, `findings` here)."""
