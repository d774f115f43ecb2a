"""`kill -9` of `counterflow report`: what is seen is the old page or the new one, never half."""

import random
import shutil
import time

from common import RUN, Row, command, committed

EARLIER = b"<!-- an earlier page -->\n"


def killed_report(workshop, trials):
    row, chance = Row("SIGKILL", "`counterflow report`"), random.Random(2)
    reference, wanted = workshop.reference(RUN)
    place = workshop.folder() / reference.name
    shutil.copytree(reference, place)
    page, figures = place / "report.html", place / "figures"

    def start():
        return workshop.server.start(command, ["report", str(place)])

    since = time.monotonic()
    start().wait()
    life = time.monotonic() - since
    new = {path.name: path.read_bytes() for path in (page, *figures.iterdir())}
    old = new[page.name] + EARLIER
    aside = page.with_name(page.name + ".part")
    while row.trials < trials:
        shutil.rmtree(figures)
        page.write_bytes(old)
        aside.unlink(missing_ok=True)
        since, process = time.monotonic(), start()
        if row.trials % 4 == 3:
            process.sleep(life, aside.exists, pause=0.0005)  # while the page itself is written
        else:
            process.sleep(chance.uniform(0, life))
        if process.kill():
            row.trials += 1
            row.happened["killed"] += 1
            row.committed += committed(wanted)
            print(f"{row.where}: kill {row.trials} of {trials}", flush=True)
        else:
            row.ended(process)
            life = min(life, time.monotonic() - since)
        _count(row, page, figures, new, old)
    row.ended(start())
    _count(row, page, figures, new, b"")
    row.survived(wanted, workshop.look(place))
    return row


def _count(row, page, figures, new, old):
    """Counts the page and the figures that are neither old nor new, but something between."""
    seen = page.read_bytes()
    row.happened["the page was the old one" if seen == old else "the page was the new one"] += 1
    row.wrong += seen not in (old, new[page.name])
    row.series += 1
    for path in figures.glob("*.p??") if figures.exists() else ():
        row.wrong += not _is_whole(path, new)
        row.series += 1


def _is_whole(path, new):
    """Whether a figure is as it should be; of a PDF, whose parts come in any order, to its end."""
    content = path.read_bytes()
    if path.suffix == ".pdf":
        return content.startswith(b"%PDF") and content.endswith(b"%%EOF")
    return content == new[path.name]
