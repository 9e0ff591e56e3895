"""A model with round numbers, so that schedules can be computed by hand."""

import pytest

from safesync.emulator import Contention, EngineModel, Limits, StepTime


@pytest.fixture(scope="session")
def make_model():
    def make(*, step=None, contention=({"factor": 2.0},), overhead_s=0.0, **limits):
        bounds = {"max_num_seqs": 8, "max_num_batched_tokens": 100, "max_model_len": 1000}
        parts = {"base_s": 1.0, "per_decode_s": 0.25, "per_prefill_token_s": 0.125}
        return EngineModel(
            limits=Limits(**(bounds | limits)),
            step=StepTime(**(parts | (step or {}))),
            contention=tuple(Contention(**phase) for phase in contention),
            client_overhead_s=overhead_s,
        )

    return make
