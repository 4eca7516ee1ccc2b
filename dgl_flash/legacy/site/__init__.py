"""A folder for the ``PYTHONPATH`` of the processes that a redirected script starts."""
