"""The learners: islands that train one small model with DiLoCo, and the progress they make.

``train.train`` is one run. ``python -m safesync.learners PLAN.json ISLAND PARENT_PID`` is one of
its islands; they meet through a file on the loopback interface and merge through
``safesync.outer``. Exit status: 0 at the end of the plan; 3, with one sentence on stderr, when
another island was lost or silent; 143 or 130 on SIGTERM or SIGINT, at once; 1 otherwise, with one
sentence. An island whose parent died exits within two seconds.
"""
