"""The terminal dashboard.

How it is built, from the data outwards:

- `snapshot`, `feed`, `live`, `replay`: a feed gives the newest `Snapshot` (View, Report, place in a replay) and never makes
  the caller wait; it reads and judges in threads of its own.
- `tape`: what was just seen and what follows, written to a recording by a thread of its own. `landmarks`, `moments`: the places of
  a recording a person can go to, searched in the background. `group`: several feeds as one, for clusters and before and after.
- `session`: one immutable state of what the person asked for: filter, orders, SLO override, paused, theme, matrix.
  It is replaced as a whole (`TopApp.change(filter=…)`), so that everything drawn is a function of (snapshot, session, place).
- `models`: that function's first half, pure: numbers become cells with text, style, mark and reason.
- `draw`: its second half, pure: cells become lines of styled text, and `Sheet`s with spots that lead to other places.
- `places`, `screens`: the main screen lies below a stack of places (pool, worker, pair, matrix, diagnosis, runbook, fleet,
  events, start). Enter on a spot, or a key, puts a place on top; escape takes it off; breadcrumbs show the stack.
  `screens.KINDS` is the registry: a kind of place is one pure `sheet(scene)`.
- `commands`: the one list of keys and commands. Bindings, footer, help overlay and palette are made from it; a key may mean
  something else at another kind of place.
- `desk`: what the command line lends, since rooms of their own do it: plans of runbooks, the state of a start, copying.
- `habits`: the part of the app that asks at prompts and writes files; `asked` reads what was typed, `export` and `encode` make
  what leaves the screen (`pdops/top/v1`).
- `widgets`, `app`: Textual. Data is built in a worker thread; the thread that draws only compares lines and paints those
  that changed.
"""
