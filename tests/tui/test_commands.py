"""One list of commands: names, keys, where they work, and what is made of it."""

from __future__ import annotations

import itertools

import pytest

from pdops_tui import places as at
from pdops_tui.app import TopApp
from pdops_tui.commands import COMMANDS, bindings, command, footer, meant
from pdops_tui.draw.line import plain
from pdops_tui.draw.pages import help_lines
from pdops_tui.screens import KINDS

EVERYWHERE = (at.MAIN, *KINDS)


def test_names_are_unique_and_found() -> None:
    names = [c.name for c in COMMANDS]
    assert len(names) == len(set(names))
    assert command("quit").keys.startswith("q")
    with pytest.raises(KeyError):
        command("nothing")


@pytest.mark.parametrize("place", EVERYWHERE)
@pytest.mark.parametrize("replay", [False, True])
def test_a_key_means_one_thing_at_a_place(place: str, replay: bool) -> None:
    for key, items in bindings().items():
        here = [c for c in items if c.works(place, replay=replay)]
        special = [c for c in here if c.places]
        assert len(special) <= 1, (key, [c.name for c in special])
        if here:
            assert meant(key, place, replay=replay) in here


def test_every_action_is_one_of_the_app() -> None:
    for item in COMMANDS:
        name = item.action.partition("(")[0].rpartition(".")[2]
        assert hasattr(TopApp, f"action_{name}"), item.name


def test_every_command_with_a_key_is_in_help() -> None:
    text = plain(help_lines((), 200))
    for item in COMMANDS:
        if item.shown:
            assert item.help in text


@pytest.mark.parametrize("place", EVERYWHERE)
def test_the_footer_begins_with_the_way_out(place: str) -> None:
    names = [c.name for c in footer(place, replay=False)]
    assert names[0] == "quit"
    assert (place == at.MAIN) != ("back" in names)


def test_places_of_commands_exist() -> None:
    named = set(itertools.chain.from_iterable(c.places for c in COMMANDS))
    assert named <= set(EVERYWHERE)
