"""The web page: files of this package, sent as they are. No build step, nothing loaded from elsewhere.

    /                        the journey: rates, depth, age and risk of every stage, the last hour, what is wrong now
    /queue-metrics           what waits warm and cold by flow and action; running tasks
    /queues, /queues/NAME    queues; one with its groups, partitions, options, messages, a test push, seeks
    /dead-letters            filter, replay, purge
    /parcels, /parcels/DID   search, history, resume, replay, cancel, annotate
    /flows                   flows of dispatch and their workers, streaming queries; pause, resume, stop
    /destinations            breaker, backoff, send queues, dead letters; pause, resume
    /buffers                 buffer files, losses, maintenance
    /access                  keys, and the audit log

**One document.** Every address above is answered with the same `index.html`; its script reads the address and draws the
view. Filters, sorting and grouping are in the address (`?state=ERROR&flow=clicks`), so that a view can be sent to a
colleague and the browser's back button works. The page holds no figure that REST does not give: whatever it shows can
be read with `curl`, and every action is a documented request with the caller's key or session.

**Scripts** are ES modules, one view a file. Text from anywhere (names, payloads, errors) becomes text nodes (`dom.js`);
no script and no style stands in the markup, and the content policy (`html_responses`) would refuse one. Pictures are
SVG.

**Limits.** All files together are under 150 KB and kept in memory with their ETags; a browser that asks again is
answered 304. A view asks every 5 seconds while its tab is seen, and not at all while it is hidden; figures older than
15 seconds are marked as stale. Lists show a page at a time.

**Sign-in.** Where keys are in force, `/api/v1/session` says so and the page asks for a key; see `gate`. The files
themselves are open: they hold nothing of the server's.
"""
