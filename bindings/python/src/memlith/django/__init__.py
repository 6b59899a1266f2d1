"""Django on memlith: DATABASES = {"default": {"ENGINE": "memlith.django", "NAME": BASE_DIR / "app.db"}}.

OPTIONS may hold durability ("full" or "weak"), window_ms, window_bytes, log_mib, log_max_mib and memory_max_mib, beside
those of Django's own sqlite3 backend.
"""
