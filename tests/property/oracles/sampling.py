"""Numbers by chance."""

import xxhash


def random_number(source, identity):
    of_source = xxhash.xxh64_intdigest(source.encode())
    return {"random": (xxhash.xxh64_intdigest(identity.encode(), of_source) * 10**8 >> 64) / 10**8}


ORACLES = {"random_number_v1": random_number}
