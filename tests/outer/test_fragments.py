from safesync.outer import Fragment, split


def test_split_tiles_the_model_and_shortens_the_last():
    assert split(10, 4) == [Fragment(0, 4), Fragment(4, 8), Fragment(8, 10)]
    assert split(3, 3) == [Fragment(0, 3)]
