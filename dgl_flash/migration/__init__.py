"""Rewriting programs from ``dgl.nn`` to ``dgl_flash.nn``, behind ``dgl-flash migrate``.

``files`` finds, reads and writes; ``source`` rewrites one module, ``notebook`` one notebook;
``report`` prints. What is here without libcst does not import it: see ``dgl_flash.cli.migrate``.
"""
