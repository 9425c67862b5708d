"""Claims: of all runs of a job one may write, the one with the highest attempt.

Where a store creates exclusively, the file of the next attempt is created; whoever comes second
takes the one after. Other stores need a list that shows every put that ended before it, as those of
S3 and Google do: a run puts its claim under a random id and lists. If another claim has the same
attempt it takes its own back and tries a higher one, so at most one sees itself alone. That one
notes that it has won and lists once more: no higher attempt, and the attempt is its own. (The
lowest id winning would not do: a run that listed earlier may already have gone on alone.) Only
claims that were won say what the lineage is, so one that crashed half way has no say.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING

from plait.checkpoints.codec import decode, encode
from plait.checkpoints.manifests import Claim
from plait.checkpoints.paths import claim_path, sort_files, won_path
from plait.checkpoints.store import Missing, StoreFailed
from plait.errors import InternalError, StateError

if TYPE_CHECKING:
    from plait.checkpoints.codec import Key
    from plait.checkpoints.manifests import Owner
    from plait.checkpoints.paths import Contents
    from plait.checkpoints.store import Store

TRIES = 40
READS = 5
"""A claim that cannot be read is looked at so often."""
PAUSE_S = 0.02
CLAIM_BYTES = 65_536


def take(
    store: Store,
    folder: str,
    job: str,
    lineage: str | None,
    key: Key | None,
    owner: Owner | None = None,
) -> Claim:
    """The next attempt of a job, for this run alone. `lineage`: None for that of the folder."""
    if store.exclusive:
        return try_to_take(store, folder, job, lineage, key, owner)
    for trial in range(READS):
        try:
            return try_to_take(store, folder, job, lineage, key, owner)
        except StateError:  # maybe a claim that another run was just writing
            if trial == READS - 1:
                raise
        time.sleep(random.uniform(0, PAUSE_S * (trial + 1)))
    raise InternalError("a claim was neither taken nor refused")


def try_to_take(
    store: Store,
    folder: str,
    job: str,
    lineage: str | None,
    key: Key | None,
    owner: Owner | None = None,
) -> Claim:
    """As `take`; raises also where another run was just writing its claim."""
    for trial in range(TRIES):
        contents = list_attempts(store, folder)
        known = lineage_of(store, folder, contents, job, key)
        if lineage is not None and known is not None and known != lineage:
            raise StateError(
                f"the checkpoints of job {job!r} are of lineage {known}, not {lineage}: "
                "the folder was replaced, or belongs to another run"
            )
        chosen = known or lineage or secrets.token_hex(8)
        claim = Claim(job=job, lineage=chosen, attempt=contents.attempt + 1, owner=owner)
        if store.exclusive:
            if store.create(f"{folder}/{claim_path(claim.attempt)}", encode(claim, key)):
                return claim
        elif put_alone(store, folder, claim, key):
            return claim
        time.sleep(random.uniform(0, PAUSE_S * (trial + 1)))
    raise StateError(f"job {job!r}: {TRIES} times another run took the next attempt; try again")


def put_alone(store: Store, folder: str, claim: Claim, key: Key | None) -> bool:
    """Whether the attempt is this run's, on a store without exclusive creation."""
    id = secrets.token_hex(8)
    path, won = claim_path(claim.attempt, id), won_path(claim.attempt, id)
    store.write(f"{folder}/{path}", [encode(claim, key)])
    contents = list_attempts(store, folder)
    others = [attempt for found, attempt in contents.claims.items() if found != path]
    if path in contents.claims and all(attempt < claim.attempt for attempt in others):
        known = lineage_of(store, folder, contents, claim.job, key)
        if known in (None, claim.lineage):
            store.write(f"{folder}/{won}", [encode(claim, key)])
            if list_attempts(store, folder).attempt == claim.attempt:
                return True
            store.delete(f"{folder}/{won}")
    store.delete(f"{folder}/{path}")
    return False


def list_attempts(store: Store, folder: str) -> Contents:
    return sort_files(folder, store.list(f"{folder}/attempts"))


def lineage_of(
    store: Store, folder: str, contents: Contents, job: str, key: Key | None
) -> str | None:
    """The lineage that the claims tell, None if there are none. Damaged ones are passed over as
    long as another tells it."""
    paths = contents.claims if store.exclusive else contents.won
    refused: list[str] = []
    for path in sorted(paths, reverse=True):
        try:
            data = store.read(f"{folder}/{path}", CLAIM_BYTES)
            claim = decode(data, Claim, key, f"{folder}/{path}")
        except Missing:  # taken back since the list was made; nobody deletes one that counts
            continue
        except StoreFailed:
            now = list_attempts(store, folder)
            if path in now.claims or path in now.won:
                raise
            continue  # taken back while it was read
        except StateError as error:
            refused.append(str(error))
            continue
        if claim.job != job or claim.attempt != paths[path]:
            refused.append(f"{folder}/{path} is a claim of job {claim.job!r}, {claim.attempt}")
            continue
        return claim.lineage
    if refused:
        raise StateError(f"no claim of job {job!r} can be read: {'; '.join(refused)}")
    return None


def newest(store: Store, folder: str, key: Key | None) -> Claim | None:
    """The claim of the newest attempt; None: there is none, or it cannot be read."""
    contents = list_attempts(store, folder)
    paths = contents.claims if store.exclusive else contents.won
    for path, attempt in paths.items():
        if attempt == contents.attempt:
            try:
                data = store.read(f"{folder}/{path}", CLAIM_BYTES)
                return decode(data, Claim, key, f"{folder}/{path}")
            except StoreFailed:
                raise
            except StateError:  # taken back since, or damaged: that it is there is enough for all
                return None  # but those who want to know whose it is
    return None
