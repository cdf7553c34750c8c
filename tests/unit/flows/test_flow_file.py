"""Reading flows: every fault is told at once, with file and line, and what is fine becomes a Flow."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from forebay.config.load import load
from forebay.flows import (
    ClassAction,
    Flow,
    FlowsRefused,
    QueueSink,
    Source,
    SqlAction,
    Table,
    TableSink,
    Watermark,
    find_flows,
    load_flows,
)
from forebay.flows.flow_file import check_written

WHOLE = """\
data_dir: elsewhere
flows:
  - name: clicks
    mode: stream
    source:
      queue: clicks
      group: reports
      startingOffsets: {seq: 7}
      maxBytesPerTrigger: 64Mi
      failOnDataLoss: false
      payloadAs: json
      schema: user STRING, ms INT
    tables:
      users: {format: csv, path: users.csv, options: {header: "true"}}
    watermark: {column: at, delay: 1m30s}
    actions:
      - name: slow
        sql: SELECT * FROM input WHERE ms > 1000
      - name: some
        class: sample
        params: {fraction: 0.25}
    sink: {table: {format: parquet, path: out, partitionBy: [user]}}
    trigger: 500ms
    error_queue: rubbish
"""
SMALLEST = "flows:\n  - {name: copy, mode: stream, source: {queue: a}, sink: {queue: b}}\n"

PARSE_BEHIND_DEDUPLICATE = """\
    actions:
      - {name: d, class: deduplicate, params: {keys: [a]}}
      - {name: p, class: parse_json, params: {schema: a INT}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "forebay.yaml"


def faults_of(file: Path, text: str) -> list[str]:
    file.write_text(text)
    return [str(fault).removeprefix(f"{file} ") for fault in find_flows(file).faults]


def flow_with(lines: str) -> str:
    """A flow that is fine but for these lines."""
    return f"flows:\n  - name: copy\n    mode: stream\n    source: {{queue: a}}\n    sink: {{queue: b}}\n{lines}"


def test_every_key_of_a_flow_is_read(file: Path) -> None:
    file.write_text(WHOLE)
    (flow,) = load_flows(file)
    assert flow == Flow(
        name="clicks",
        mode="stream",
        source=Source(
            queue="clicks",
            group="reports",
            starting_offsets={"seq": 7},
            max_bytes_per_trigger=64 * 1024**2,
            fail_on_data_loss=False,
            payload_as="json",
            schema="user STRING, ms INT",
        ),
        tables=flow.tables,
        watermark=Watermark(column="at", delay=timedelta(seconds=90)),
        actions=(
            SqlAction(name="slow", sql="SELECT * FROM input WHERE ms > 1000"),
            ClassAction(name="some", class_name="sample", params={"fraction": "0.25"}),
        ),
        sink=TableSink(table=Table(format="parquet", path=str(file.parent / "out"), partition_by=("user",))),
        trigger=timedelta(milliseconds=500),
        error_queue="rubbish",
    )
    assert flow.tables["users"].options == {"header": "true"}
    assert flow.tables["users"].path == str(file.parent / "users.csv")


@pytest.mark.parametrize("path", ["/data/out", "s3a://bucket/out", "file:/data/out", "dbfs:/out"])
def test_paths_that_are_not_relative_stay_as_written(file: Path, path: str) -> None:
    text = SMALLEST.replace("{queue: b}", f"{{table: {{path: '{path}'}}}}, checkpoint: '{path}-seen'")
    file.write_text(text)
    (flow,) = load_flows(file)
    assert isinstance(flow.sink, TableSink)
    assert (flow.sink.table.path, flow.checkpoint) == (path, f"{path}-seen")


def test_what_is_left_out_has_defaults(file: Path) -> None:
    file.write_text("flows:\n  - {name: copy, source: {queue: a}, sink: {queue: b}}\n")
    (flow,) = load_flows(file)
    assert (flow.group, flow.errors_to, flow.output_queues[0]) == ("copy", "copy.errors", "b")
    assert (flow.mode, flow.source.starting_offsets, flow.source.parcel_messages) == ("parcels", "earliest", 10_000)


def test_settings_of_the_same_file_do_not_mind_the_flows(file: Path) -> None:
    file.write_text(WHOLE)
    assert load(file=file).settings.data_dir == Path("elsewhere")


@pytest.mark.parametrize("text", ["", "flows:\n", "data_dir: x\n", "flows: []\n"])
def test_file_without_flows_has_none(file: Path, text: str) -> None:
    file.write_text(text)
    assert load_flows(file) == []


def test_all_faults_are_told_at_once_each_with_its_line(file: Path) -> None:
    faults = faults_of(
        file,
        """\
flows:
  - name: wrong
    source: {queu: x, maxOffsetsPerTrigger: lots}
    actions:
      - name: b
        class: sampel
      - name: b
        class: sample
        params: {fraction: 1.5, fracton: 2}
      - {name: c, sql: x, class: y}
    sink: {queue: out, table: {}}
    trigger: 5
    name: again
""",
    )
    assert [fault.partition(";")[0] for fault in faults] == [
        f"line 13: flows.0: name: stands twice (also at {file} line 2)",
        "line 3: wrong: source.queu: no such key (did you mean queue?)",
        "line 3: wrong: source.maxOffsetsPerTrigger: 'lots' is refused: expected int | null, got str",
        "line 10: wrong: actions.2: holds sql and class: write one of them",
        "line 11: wrong: sink: holds queue and table: write one of them",
        "line 12: wrong: trigger: 5 is refused: add a unit: 5s, 5ms, …",
        "line 6: wrong: actions.0.class: no built-in action 'sampel' (did you mean sample?)",
        f"line 7: wrong: actions.1.name: another action is named 'b' already ({file} line 5)",
        "line 9: wrong: actions.1.params.fraction: '1.5' is refused: expected float <= 1.0",
        "line 9: wrong: actions.1.params.fracton: no such key (did you mean fraction?)",
    ]


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("    actions: {a: b}\n", "line 6: copy: actions: {'a': 'b'} is refused: expected a list"),
        ("    actions: [one]\n", "line 6: copy: actions.0: 'one' is refused: expected a mapping"),
        ("    actions: [{name: a}]\n", "line 6: copy: actions.0: holds none of sql and class: write one of them"),
        ("    mode_: 1\n", "line 6: copy: mode_: no such key (did you mean mode?)"),
        ("    watermark: {column: at}\n", "line 6: copy: watermark.delay: is missing"),
        ("    tables: {input: {format: csv}}\n", "line 6: copy: tables.input: a table is named like a column"),
        ("    error_queue: b\n", "line 6: copy: error_queue: queue 'b' is the flow's own source or sink"),
        ("    checkpoint: ''\n", "line 6: copy: checkpoint: '' is refused: expected str of length >= 1"),
        (
            "    actions: [{name: p, class: no.such.Thing}]\n",
            "line 6: copy: actions.0.class: no module 'no'. Put it beside the file, or on PYTHONPATH",
        ),
        (
            "    actions: [{name: p, class: os.path.join}]\n",
            "line 6: copy: actions.0.class: os.path.join is no action.",
        ),
        (
            PARSE_BEHIND_DEDUPLICATE,
            "line 8: copy: actions.1: parse_json sets bad records aside and has to stand before 'd'",
        ),
        ("    actions: [{name: p, class: rollup}]\n", "line 6: copy: actions.0.params.window: is missing"),
    ],
)
def test_fault_is_told_with_its_line(file: Path, lines: str, fault: str) -> None:
    found = faults_of(file, flow_with(lines))
    assert found
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("    trigger: 1s\n", "trigger: it belongs to mode: stream"),
        ("    checkpoint: here\n", "checkpoint: it belongs to mode: stream"),
        ("    watermark: {column: at, delay: 1s}\n", "watermark: it belongs to mode: stream"),
        ("    time_limit: 0s\n", "time_limit: it is not above zero"),
        ("    sinks: [{queue: c}]\n", "sinks: stands beside sink: write one of them"),
        ("    actions: [{name: d, class: deduplicate, params: {keys: [a]}}]\n", "actions.0: deduplicate keeps state"),
        ("    actions: [{name: 'a b', sql: x}]\n", "actions.0.name: 'a b' is refused"),
        ("    actions: [{name: a, sql: x, time_limit: 0s}]\n", "actions.0.time_limit: it is not above zero"),
        ("    actions: [{name: a, sql: x, join: {min: 2}}]\n", "actions.0.join.max_age: is missing"),
    ],
)
def test_what_a_flow_on_parcels_cannot_have_is_refused(file: Path, lines: str, fault: str) -> None:
    text = f"flows:\n  - name: copy\n    source: {{queue: a}}\n    sink: {{queue: b}}\n{lines}"
    [found] = faults_of(file, text)
    assert found.startswith(f"line 5: copy: {fault}")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("    actions: [{name: a, sql: x, isolate: true}]\n", "actions.0.isolate: it belongs to mode: parcels"),
        ("    actions: [{name: a, sql: x, time_limit: 5s}]\n", "actions.0.time_limit: it belongs to mode: parcels"),
        ("    max_errors: 5\n", "max_errors: it belongs to mode: parcels"),
        ("    time_limit: 5m\n", "time_limit: it belongs to mode: parcels"),
    ],
)
def test_what_only_a_flow_on_parcels_has_is_refused_in_a_stream(file: Path, lines: str, fault: str) -> None:
    [found] = faults_of(file, flow_with(lines))
    assert fault in found


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{queue: a, cron: '* * * * *'}", "source: it needs a queue, or else cron or errors"),
        ("{payloadAs: string}", "source: it needs a queue, or else cron or errors"),
        ("{queue: a, parcel_messages: 0}", "source.parcel_messages: 0 is refused"),
        ("{queue: a, maxOffsetsPerTrigger: 5}", "source.maxOffsetsPerTrigger: it belongs to mode: stream"),
        ("{cron: '* * * * *', group: g}", "source.group: it belongs to a source that is a queue"),
        ("{cron: '* * * * *', partition: eu}", "source.partition: it belongs to a source that is a queue"),
        ("{errors: {text: x}, parcel_messages: 5}", "source.parcel_messages: it belongs to a source that is a queue"),
        ("{queue: a, retryTimeout: 5s}", "source.retryTimeout: it belongs to mode: stream"),
    ],
)
def test_sources_of_parcels_are_judged(file: Path, source: str, fault: str) -> None:
    found = faults_of(file, f"flows:\n  - name: copy\n    source: {source}\n    sink: {{queue: b}}\n")
    assert fault in found[0]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{queue: a, payloadAs: json}", "source: payloadAs: json and schema belong together"),
        ("{queue: a, schema: x INT}", "source: payloadAs: json and schema belong together"),
        ("{queue: a, payloadAs: xml}", "source.payloadAs: 'xml' is refused: expected binary or string or json"),
        ("{queue: a, startingOffsets: first}", "source.startingOffsets: 'first' is refused"),
        ("{queue: a, startingOffsets: {seq: x}}", "source.startingOffsets: {'seq': 'x'} is refused"),
        ("{queue: a, maxPayload: big}", "source.maxPayload: 'big' is refused"),
    ],
)
def test_fault_of_a_source_is_told(file: Path, source: str, fault: str) -> None:
    text = f"flows:\n  - {{name: copy, mode: stream, source: {source}, sink: {{queue: b}}}}\n"
    (found,) = faults_of(file, text)
    assert found.startswith(f"line 2: copy: {fault}")


def test_names_cursors_and_checkpoints_belong_to_one_flow_each(file: Path) -> None:
    flow = "  - {name: %s, mode: stream, source: {queue: a, group: g}, sink: {queue: %s}, checkpoint: c}\n"
    found = faults_of(file, "flows:\n" + flow % ("one", "b") + flow % ("two", "c") + flow % ("One", "d"))
    assert found == [
        f"line 4: One: name: another flow has that name already ({file} line 2)",
        "line 3: two: source.group: flow 'one' moves the cursor of group 'g' in the same queue",
        "line 3: two: checkpoint: flow 'one' has its checkpoint there",
        "line 4: One: checkpoint: flow 'one' has its checkpoint there",
    ]


DESTINATIONS = (
    "destinations:\n  - {name: warehouse, type: http, url: 'http://w'}\n  - {name: lake, type: http, url: 'http://l'}\n"
)


def test_sink_names_a_destination_of_the_file_if_that_has_any(file: Path) -> None:
    one = "flows:\n  - name: a\n    source: {queue: q}\n    sink: {export: warehose}\n"
    several = "flows:\n  - name: b\n    source: {queue: r}\n    sinks:\n      - {queue: s}\n      - {export: like}\n"
    file.write_text(one + DESTINATIONS)
    [fault] = find_flows(file).faults
    assert fault.place.endswith("line 4")
    assert fault.message == "there is no destination 'warehose'; this file has lake, warehouse"
    file.write_text(several + DESTINATIONS)
    [fault] = find_flows(file).faults
    assert (fault.key, fault.place.rpartition(" ")[2]) == ("sinks.1.export", "6")
    file.write_text(one.replace("warehose", "warehouse") + DESTINATIONS)
    assert find_flows(file).faults == []
    file.write_text(one)
    assert find_flows(file).faults == [], "the servers' settings are elsewhere"


def test_circle_of_queues_is_told_once(file: Path) -> None:
    flow = "  - {name: %s, mode: stream, source: {queue: %s}, sink: {queue: %s}}\n"
    text = (
        "flows:\n" + flow % ("x", "a", "b") + flow % ("y", "b", "c") + flow % ("z", "c", "a") + flow % ("w", "c", "d")
    )
    assert faults_of(file, text) == ["line 2: x: sink: the queues form a circle: a -> b -> c -> a"]


def test_flow_into_its_own_source_is_a_circle(file: Path) -> None:
    text = "flows:\n  - {name: x, mode: stream, source: {queue: a}, sink: {queue: a}}\n"
    assert faults_of(file, text) == ["line 2: x: sink: the queues form a circle: a -> a"]


def test_circle_through_an_error_queue_is_found(file: Path) -> None:
    text = (
        "flows:\n"
        "  - {name: x, mode: stream, source: {queue: a}, sink: {queue: b}}\n"
        "  - {name: again, mode: stream, source: {queue: x.errors}, sink: {queue: a}}\n"
    )
    assert faults_of(file, text) == ["line 2: x: sink: the queues form a circle: a -> x.errors -> a"]


@pytest.mark.parametrize(
    ("text", "fault"), [("flows: 5\n", "line 1: flows: expected"), ("a: [\n", "line 2: it has to")]
)
def test_file_that_holds_something_else_is_refused(file: Path, text: str, fault: str) -> None:
    (found,) = faults_of(file, text)
    assert found.startswith(fault)


def test_load_raises_all_faults(file: Path) -> None:
    file.write_text(flow_with("    a: 1\n    b: 2\n"))
    with pytest.raises(FlowsRefused, match=r"2 faults in the flows:\n.*line 6.*\n.*line 7") as refused:
        load_flows(file)
    assert [fault.key for fault in refused.value.faults] == ["a", "b"]


@pytest.fixture
def no_modules_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setenv("PYTHONPATH", "")


@pytest.mark.usefixtures("no_modules_left")
def test_flows_and_actions_of_modules_beside_the_file_are_found(file: Path) -> None:
    (file.parent / "shop_flows.py").write_text(
        "from forebay.flows import *\n"
        "class Enrich(DataFrameAction):\n"
        "    class Params(ActionParams, frozen=True):\n"
        "        region: str\n"
        "def made(name):\n"
        "    action = ClassAction(name='e', class_name='shop_flows.Enrich', params={'region': 'eu'})\n"
        "    return Flow(name=name, mode='stream', source=Source(queue=name), sink=QueueSink(queue='out'),\n"
        "                actions=(action,))\n"
        "one = made('one')\n"
        "others = [made('two'), one]\n"
    )
    file.write_text(SMALLEST + "  - module: shop_flows\n")
    assert [flow.name for flow in load_flows(file)] == ["copy", "one", "two"]
    written = "  - name: three\n    mode: stream\n    source: {queue: three}\n    sink: {queue: out}\n    actions:\n"
    action = "      - {name: e, class: shop_flows.Enrich, params: {regoin: eu}}\n"
    assert faults_of(file, "flows:\n" + written + action) == [
        "line 7: three: actions.0.params.regoin: no such key (did you mean region?); the keys are region",
        "line 7: three: actions.0.params.region: is missing",
    ]


@pytest.mark.usefixtures("no_modules_left")
def test_file_is_judged_as_far_as_it_goes_without_its_code_before_spark_is_there(file: Path) -> None:
    (file.parent / "eager_shop.py").write_text("raise SystemError('there is no session')\n")
    file.write_text(
        "flows:\n"
        "  - module: eager_shop\n"
        "  - {name: copy, mode: stream, source: {queue: a}, sink: {queue: b}, actions: [{name: x, class: eager_shop.X}]"
        "}\n"
    )
    written = check_written(file)
    assert [located.flow.name for located in written.flows] == ["copy"]
    assert (written.has_modules, "eager_shop" in sys.modules) == (True, False)
    assert [fault.key for fault in find_flows(file).faults] == ["module", "actions.0.class"]
    file.write_text(f"{file.read_text()}  - {{name: copy}}\n")
    with pytest.raises(FlowsRefused, match="line 4"):
        check_written(file)


@pytest.mark.usefixtures("no_modules_left")
def test_module_that_cannot_be_used_is_a_fault_and_no_crash(file: Path) -> None:
    (file.parent / "shop_broken.py").write_text("1 / 0\n")
    (file.parent / "shop_empty.py").write_text("x = 1\n")
    text = "flows:\n  - module: shop_broken\n  - module: shop_empty\n  - module: shop_gone\n"
    assert faults_of(file, text) == [
        "line 2: module: importing shop_broken failed: ZeroDivisionError: division by zero",
        "line 3: module: module shop_empty holds no Flow",
        "line 4: module: no module 'shop_gone'. Put it beside the file, or on PYTHONPATH",
    ]


@pytest.mark.usefixtures("no_modules_left")
def test_values_of_wrong_types_in_a_module_are_faults(file: Path) -> None:
    (file.parent / "shop_types.py").write_text(
        "from forebay.flows import *\n"
        "source = Source(queue='in', starting_offsets=3)\n"
        "flow = Flow(name='typed', mode='streem', source=source, sink=QueueSink(queue='out'), trigger=5)\n"
        "fine = Flow(name='fine', mode='stream', source=Source(queue='in'), sink=QueueSink(queue='b'), trigger='2s')\n"
    )
    assert faults_of(file, "flows:\n  - module: shop_types\n") == [
        "module shop_types: typed: mode: 'streem' is refused: expected parcels or stream",
        "module shop_types: typed: source.startingOffsets: 3 is refused: expected str | object, got int",
        "module shop_types: typed: trigger: 5 is refused: add a unit: 5s, 5ms, …",
    ]


@pytest.mark.usefixtures("no_modules_left")
def test_parameters_that_the_action_itself_refuses_are_faults(file: Path) -> None:
    (file.parent / "shop_params.py").write_text(
        "from __future__ import annotations\n"
        "from forebay.flows import *\n"
        "class Between(DataFrameAction):\n"
        "    class Params(ActionParams, frozen=True):\n"
        "        low: int\n"
        "        bounds: tuple[int, str] = (0, '')\n"
        "        def __post_init__(self):\n"
        "            if self.low > self.bounds[0]:\n"
        "                raise ValueError('low is above bounds')\n"
        "class Unknown(DataFrameAction):\n"
        "    class Params(ActionParams, frozen=True):\n"
        "        low: NoSuchType\n"
    )
    text = flow_with(
        "    actions:\n"
        "      - {name: a, class: shop_params.Between, params: {low: 5, bounds: [4, x]}}\n"
        "      - {name: b, class: shop_params.Between, params: {low: 5, bounds: [6, y]}}\n"
        "      - {name: c, class: shop_params.Unknown, params: {low: 5}}\n"
    )
    first, second = faults_of(file, text)
    assert first == "line 7: copy: actions.0.params: low is above bounds"
    assert second.startswith(
        "line 9: copy: actions.2.params: the Params of shop_params.Unknown cannot be used: NameError"
    )


def test_python_flow_is_judged_like_a_written_one() -> None:
    from forebay.flows.checks import check_flows
    from forebay.flows.located import Located

    flow = Flow(name="no/slash", source=Source(queue="a"), sink=QueueSink(queue="b"))
    assert [str(fault) for fault in check_flows([Located(flow, "module shop")])] == [
        "module shop: no/slash: name: 'no/slash' is refused: letters, digits, '.', '_' and '-', at most 64",
    ]
