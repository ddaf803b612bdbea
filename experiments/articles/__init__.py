"""The published claims about NDM-TCP, tested: ``python -m experiments.articles``.

``trials.py`` says what is run, ``carry_out.py`` runs it and keeps each result as one small file of ``measures.py``,
``claims.json`` has the articles' figures and claims, ``verdicts.py`` judges them, ``page.py`` says what came out, with
``figures.py``.
"""
