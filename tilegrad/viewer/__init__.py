"""The viewer: one page for compiled functions, profiles, memory and training, saved as a file or served locally.

`model.py` defines the data, `page.py` writes it into a page, `assets/` draws it, `server.py` serves it to a browser.
"""
