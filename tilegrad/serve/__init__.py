"""Serve networks to others: the Open Inference Protocol over HTTP, with batches of requests that come together.

    tilegrad serve net.tgp other.onnx --port 8000
    python -m tilegrad.serve bench http://127.0.0.1:8000 net

The application (`application.py`) follows the ASGI standard and needs no package; the server (`server.py`) runs it on
uvicorn, which `pip install 'tilegrad[serve]'` installs.
"""
