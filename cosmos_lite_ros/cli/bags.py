# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``make-demo-bag``, ``play``, ``replay`` and ``bag info``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from cosmos_lite_ros.bags.demo import DemoBag
    from cosmos_lite_ros.bags.info import BagInfo
    from cosmos_lite_ros.bags.replay import ReplayResult

_SYNTHETIC_STYLE = "yellow"


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _size(text: str | None) -> tuple[int, int] | None:
    from cosmos_lite_ros.errors import BadInputError

    if text is None:
        return None
    width, separator, height = text.lower().partition("x")
    if not (separator and width.isdecimal() and height.isdecimal()):
        raise BadInputError(f"--size is {text!r}, expected WIDTHxHEIGHT, for example 640x360")
    return int(width), int(height)


def _print_demo(made: DemoBag) -> None:
    console = _console()
    console.print(
        f"{made.path}: {made.duration_s:.1f} s, {sum(made.counts.values())} messages, "
        f"{made.size_bytes / 1e6:.1f} MB",
        markup=False,
    )
    console.print(f"pictures: {made.labels.source}", markup=False)
    console.print(f"instruction: {made.instruction}", markup=False)
    for note in made.notes:
        console.print(note, style=_SYNTHETIC_STYLE, markup=False)


def _print_info(info: BagInfo) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = _console()
    table = Table(title=f"{info.path} ({info.storage})", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("topic", overflow="fold")  # nothing is cut off, however narrow the terminal
    for name in ("serves", "count", "Hz", "gap s", "age ms"):
        table.add_column(name, justify="left" if name == "serves" else "right", no_wrap=True)
    for topic in info.topics:
        kind = topic.msgtype.replace("/msg/", "/")
        source = "synthetic" if topic.synthetic else ""
        lines = [part for part in (kind, topic.content, source, topic.problem) if part]
        style = "red" if topic.problem else _SYNTHETIC_STYLE if topic.synthetic else None
        table.add_row(
            "\n  ".join((topic.name, *lines)),
            topic.role,
            str(topic.count),
            _number(topic.rate_hz, 1),
            _number(topic.max_gap_s, 3),
            _number(topic.age_s * 1e3, 1),
            style=style,
        )
    console.print(table)
    console.print(
        f"{info.message_count} messages, {info.duration_s:.2f} s, starts at {info.start_ns} ns",
        markup=False,
    )
    for key, value in sorted(info.custom.items()):
        console.print(f"{key}: {value}", markup=False)
    for name, how in info.labels.synthetic.items():
        console.print(f"{name} is {how}", style=_SYNTHETIC_STYLE, markup=False)
    if info.missing:
        console.print(f"missing for the policy: {', '.join(info.missing)}", markup=False)
    for note in info.notes:
        console.print(f"note: {note}", markup=False)


def _print_replay(result: ReplayResult, out: Path) -> None:
    from rich.table import Table

    from cosmos_lite_ros.bags.report import latency_summary, skip_reasons

    console = _console()
    table = Table(title="requests", title_justify="left")
    for name in ("t in bag s", "oldest image ms", "latency s", "first joint rad", "result"):
        table.add_column(name, justify="left" if name == "result" else "right", overflow="fold")
    for request in result.requests:
        age_s = max((c.header_age_s for c in request.cameras.values()), default=math.nan)
        chunk = request.chunk
        why = "" if request.skip is None else f"skipped: {request.skip.reason}"
        span = "-"
        if chunk is not None:
            span = f"{chunk.positions[0, 0]:+.3f} .. {chunk.positions[-1, 0]:+.3f}"
        table.add_row(
            f"{request.bag_s:.3f}",
            _number(age_s * 1e3, 1),
            "-" if chunk is None else f"{chunk.latency_s:.3f}",
            span,
            why or "chunk",
        )
    console.print(table)
    latency = latency_summary(result)
    if latency:
        console.print(
            f"{len(result.chunks)} chunks, latency p50 {latency['p50']:.3f} s, p95 "
            f"{latency['p95']:.3f} s, max {latency['max']:.3f} s"
        )
    for kind, count in skip_reasons(result).items():
        console.print(f"skipped {count} times: {kind}")
    for note in result.notes:
        console.print(f"note: {note}", markup=False)
    for topic, how in result.labels.synthetic.items():
        console.print(f"{topic} is {how}", style=_SYNTHETIC_STYLE, markup=False)
    if result.random_weights:
        console.print(
            "random weights: these actions mean nothing physically", style=_SYNTHETIC_STYLE
        )
    console.print(f"written: {out / 'actions.npz'}, {out / 'report.json'}", markup=False)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    bag_app = typer.Typer(help="Look into a bag.", no_args_is_help=True)
    app.add_typer(bag_app, name="bag")

    @app.command("make-demo-bag")
    def make_demo_bag_command(
        out: Annotated[Path, typer.Argument(help="Bag folder to create.")],
        clip: Annotated[
            Path | None, typer.Option(help="Folder with the three videos; else found, or generated")
        ] = None,
        seconds: Annotated[float | None, typer.Option(help="Length; else all of the clip.")] = None,
        storage: Annotated[str, typer.Option(help="mcap or sqlite3.")] = "mcap",
        size: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT; else as recorded.")] = None,
        image_format: Annotated[
            str, typer.Option(help="jpeg, png (compressed), rgb8, bgr8, bgra8 (raw).")
        ] = "jpeg",
        generated: Annotated[bool, typer.Option(help="Generated pictures in any case.")] = False,
        seed: Annotated[int, typer.Option(help="Of the synthetic motion and latencies.")] = 0,
    ) -> None:
        """Make a bag of three cameras; joint and gripper states in it are SYNTHETIC."""
        from typing import cast, get_args

        from rich.progress import Progress

        from cosmos_lite_ros.bags.demo import ImageFormat, make_demo_bag
        from cosmos_lite_ros.bags.writer import Storage
        from cosmos_lite_ros.cli.values import choice

        choice("--storage", storage, get_args(Storage))
        choice("--image-format", image_format, get_args(ImageFormat))
        with Progress(transient=True) as progress:
            task = progress.add_task("writing", total=1.0)
            made = make_demo_bag(
                out,
                clip=clip,
                seconds=seconds,
                storage=cast(Storage, storage),
                seed=seed,
                size=_size(size),
                image_format=cast(ImageFormat, image_format),
                generated=generated,
                progress=lambda fraction: progress.update(task, completed=fraction),
            )
        _print_demo(made)

    @app.command(
        "play", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
    )
    def play_command(
        context: typer.Context,
        bag: Annotated[Path, typer.Argument(help="Bag folder, .mcap or .db3 file.")],
        rate: Annotated[float, typer.Option(help="1 is as recorded.")] = 1.0,
        loop: Annotated[bool, typer.Option("--loop", help="Start again at the end.")] = False,
        start: Annotated[float, typer.Option(help="Skip so many seconds.")] = 0.0,
        duration: Annotated[
            float | None, typer.Option(help="Play so many seconds of the bag.")
        ] = None,
        topics: Annotated[
            list[str] | None, typer.Option(help="Play only this topic; repeatable.")
        ] = None,
        publish: Annotated[
            list[str] | None,
            typer.Option(help="Play this although it may move something; repeatable."),
        ] = None,
        remap: Annotated[
            list[str] | None, typer.Option(help="OLD:=NEW, publish under NEW; repeatable.")
        ] = None,
        namespace: Annotated[str, typer.Option(help="Put all relative names below it.")] = "",
        stamps: Annotated[
            str, typer.Option(help="Header stamps: now (latencies kept), or keep.")
        ] = "now",
        force: Annotated[
            bool, typer.Option("--force", help="Publish beside other publishers.")
        ] = False,
        wait_for_subscribers: Annotated[
            float, typer.Option(help="Wait up to so many seconds until each topic is heard.")
        ] = 0.0,
        quiet: Annotated[bool, typer.Option("--quiet", help="Errors only.")] = False,
    ) -> None:
        """Play a bag on ROS 2 topics; never commands, stops or clocks unless named.

        ROS arguments may follow the others: --ros-args ...
        """
        from typing import cast, get_args

        from cosmos_lite_ros.bags.playback import Stamps, parse_remaps
        from cosmos_lite_ros.cli.values import choice
        from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError

        choice("--stamps", stamps, get_args(Stamps))
        if context.args and context.args[0] != "--ros-args":
            raise BadInputError(f"unknown argument {context.args[0]!r}: see play --help")
        try:
            from cosmos_lite_ros.ros.player_node import PlayerSettings, run
        except ImportError as error:
            raise EnvironmentLacksError(
                f"play needs ROS 2 ({error}): source its setup file, or use replay"
            ) from error

        settings = PlayerSettings(
            bag=bag,
            rate=rate,
            loop=loop,
            start_s=start,
            duration_s=duration,
            topics=tuple(topics or ()),
            publish=tuple(publish or ()),
            remap=parse_remaps(remap or ()),
            namespace=namespace,
            stamps=cast(Stamps, stamps),
            force=force,
            wait_for_subscribers_s=wait_for_subscribers,
            quiet=quiet,
        )
        run(settings, context.args)

    @bag_app.command("info")
    def info_command(
        bag: Annotated[Path, typer.Argument(help="Bag folder, .mcap or .db3 file.")],
        topics: Annotated[Path | None, typer.Option(help="Topic map, YAML.")] = None,
    ) -> None:
        """Topics, rates, gaps, ages, what is synthetic, what is missing or damaged."""
        from rich.progress import Progress

        from cosmos_lite_ros.bags.info import inspect
        from cosmos_lite_ros.bags.reader import Bag
        from cosmos_lite_ros.bags.topics import TopicMap

        topic_map = None if topics is None else TopicMap.load(topics)
        with Bag(bag) as opened, Progress(transient=True) as progress:
            task = progress.add_task("reading", total=1.0)
            found = inspect(opened, topic_map, lambda f: progress.update(task, completed=f))
        _print_info(found)

    @app.command("replay")
    def replay_command(
        bag: Annotated[Path, typer.Argument(help="Bag folder, .mcap or .db3 file.")],
        checkpoint: Annotated[str, typer.Option(help="Folder, or Hugging Face id.")],
        out: Annotated[Path, typer.Option(help="Folder for actions.npz and report.json.")],
        revision: Annotated[str, typer.Option(help="Commit of a Hugging Face id.")] = "",
        instruction: Annotated[
            str | None, typer.Option(help="Instead of the bag's; needed where it has none.")
        ] = None,
        every: Annotated[
            float | None, typer.Option(help="Time between requests, s; else one chunk, 2.1333.")
        ] = None,
        at: Annotated[
            list[float] | None, typer.Option(help="Request time in the bag, s; repeatable.")
        ] = None,
        max_requests: Annotated[int | None, typer.Option(help="At most so many.")] = None,
        topics: Annotated[
            Path | None, typer.Option(help="Topic map, YAML: '/bag/topic: wrist/image'.")
        ] = None,
        robot: Annotated[str, typer.Option(help="panda or fr3.")] = "panda",
        gripper_joint: Annotated[str, typer.Option(help="Its joint name.")] = "finger_joint",
        gripper_open: Annotated[float, typer.Option(help="Its position when open.")] = 0.0,
        gripper_closed: Annotated[float, typer.Option(help="And when closed.")] = 0.8,
        seed: Annotated[int, typer.Option(help="Noise seed of every request.")] = 0,
        steps: Annotated[int, typer.Option(help="Denoising steps, 1 to 8.")] = 2,
        guidance: Annotated[float, typer.Option(help="Guidance scale; 1 = none.")] = 3.0,
        guidance_interval: Annotated[
            tuple[float, float] | None,
            typer.Option("--guidance-interval", help="Guide only where LO < t < HI (0..1000)."),
        ] = None,
        compose: Annotated[str, typer.Option(help="client or server.")] = "client",
        aspect: Annotated[str, typer.Option(help="Other than 16:9: pad, crop, refuse.")] = "pad",
        prompt_format: Annotated[str, typer.Option(help="auto, json or plain.")] = "auto",
        device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
        dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
        action_arithmetic: Annotated[str, typer.Option(help="float32 or server.")] = "float32",
    ) -> None:
        """Run a policy over a bag in lock step, without a ROS graph; repeatable to the bit."""
        from rich.progress import Progress

        from cosmos_lite_ros.bags import report
        from cosmos_lite_ros.bags.reader import Bag
        from cosmos_lite_ros.bags.replay import CHUNK_PERIOD_S, ReplaySettings, check, replay
        from cosmos_lite_ros.bags.topics import TopicMap
        from cosmos_lite_ros.cli import values
        from cosmos_lite_ros.contract.assembler import AssemblerSettings
        from cosmos_lite_ros.contract.gripper import GripperMapping
        from cosmos_lite_ros.contract.robots import robot_type
        from cosmos_lite_ros.policy.resize import torch_resize

        # The bag is checked before torch is imported and the checkpoint is read.
        settings = ReplaySettings(
            assembler=AssemblerSettings(
                resize=torch_resize,  # as the policy node
                joint_names=robot_type(robot).joint_names,
                gripper_joint=gripper_joint,
                gripper=GripperMapping(gripper_open, gripper_closed),
                compose=values.compose_of(compose),
                aspect=values.aspect_of(aspect),
            ),
            period_s=CHUNK_PERIOD_S if every is None else every,
            at_s=tuple(at or ()),
            max_requests=max_requests,
            instruction=instruction,
            seed=seed,
            topic_map=TopicMap() if topics is None else TopicMap.load(topics),
        )
        report.check_out(out)
        with Bag(bag) as opened:
            check(opened, settings)
            from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

            engine_settings = EngineSettings(
                checkpoint=checkpoint,
                revision=revision,
                profile="replay",
                device=device,
                dtype=dtype,
                action_arithmetic=values.action_arithmetic_of(action_arithmetic),
                prompt_format=values.prompt_format_of(prompt_format),
                sampler=SamplerSettings(steps, guidance, guidance_interval),
                seed=seed,
            )
            with Progress(transient=True) as progress:
                loading = progress.add_task("loading", total=1.0)
                engine = PolicyEngine.load(
                    engine_settings, lambda f, _step: progress.update(loading, completed=f)
                )
                try:
                    engine.warm_up()  # so that the first latency is like any other
                    task = progress.add_task("replaying", total=1.0)
                    result = replay(
                        opened, engine, settings, lambda f: progress.update(task, completed=f)
                    )
                finally:
                    engine.close()
        report.write(result, out)
        _print_replay(result, out)
        if not result.chunks:
            raise typer.Exit(1)
