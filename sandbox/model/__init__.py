"""The scripted model server: only here and in the agents' room are starlette and uvicorn known."""
