"""The scripted model server: the only room that knows starlette and uvicorn."""
