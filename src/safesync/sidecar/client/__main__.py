"""Entry point; gevent patches the standard library before anything else is imported."""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402

from safesync.sidecar.client.process import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
