"""The report: one self-contained page that says what was earned, how it was measured, and why.

- `page.build`: writes `index.html` from the verdict document, the score rows and the replays.
- `replay.Replay`: the tables of one replay, as the page wants them.
- `arrivals`, `published`, `merges`: where a regime's load comes from, the regime beside the
  published study, and what its merges cost; each from tables to plain rows.
- `emulated`, `training`: how far the emulator is off, and how real runs trained on the schedules.
- `figures`: one module per figure, from tables to a specification in colour tokens.
- `templates`: words, layout and colours of the page; editing them needs no change of code.

Nothing is imported here, so that a rule depends on the modules that it names and no others.
"""
