"""Figures as plain Plotly specifications whose colours are tokens of the style sheet.

``@ink`` stands for the custom property ``--ink``, ``@c1/0.3`` for ``--c1`` at 30 % opacity; the
page's script resolves them, so that light, dark and print come from one place.
"""
