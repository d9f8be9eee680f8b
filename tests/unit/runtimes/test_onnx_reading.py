"""ONNX files of strangers: what is run is a detector whose time and memory are known before."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_files import (
    FOREIGN,
    MEAN,
    NODE,
    ROW,
    SIDE,
    bare_rows,
    constant,
    detector_nodes,
    make_file,
    own_texts,
    write_detector,
)
from utils.errors import UserError
from utils.runtimes import onnx_sizes, onnx_tensors
from utils.runtimes.onnx_reading import read_onnx
from utils.runtimes.onnx_runtime import OnnxRuntime
from utils.runtimes.openvino_runtime import OpenVinoRuntime

ROWS = constant("row", ROW)
IMAGES = (1, 3, SIDE, SIDE)


def refused(path, text):
    with pytest.raises(UserError, match=text) as found:
        OnnxRuntime(path, 1)
    assert len(str(found.value)) < 1000


def test_a_detector_runs(tmp_path):
    runtime = OnnxRuntime(write_detector(tmp_path / "a.onnx"), 1)
    (found,) = runtime(np.full(IMAGES, 0.5, np.float32))
    np.testing.assert_allclose(found, ROW + MEAN / 2, rtol=1e-6)


def test_half_precision_outside_is_float32_here(tmp_path):
    path = write_detector(
        tmp_path / "a.onnx", texts=FOREIGN, kind=TensorProto.FLOAT16, dtype=np.float16
    )
    runtime = OnnxRuntime(path, 1)
    (found,) = runtime(np.full(IMAGES, 0.5, np.float32))
    assert runtime.metadata.precision == "float16" and found.dtype == np.float32
    np.testing.assert_allclose(found, ROW + MEAN / 2, rtol=1e-3)


# What a stranger's graph asks for: a node after the other, none of which is much of a file.


def sized(operator, inputs, *initial, **attributes):
    node = NODE(operator, inputs, ["big"], **attributes)
    return bare_rows(node), [ROWS, *initial]


DOUBLED = [
    NODE("Concat", [f"v{index}" if index else "images"] * 2, [f"v{index + 1}"], axis=3)
    for index in range(40)
]
BOMBS = {
    "constant of shape": sized("ConstantOfShape", ["n"], constant("n", np.int64([2**40]))),
    "range": sized(
        "Range", ["a", "b", "c"],
        constant("a", np.float32(0)), constant("b", np.float32(1e12)), constant("c", np.float32(1)),
    ),
    "tile": sized("Tile", ["images", "n"], constant("n", np.int64([1, 1, 2**20, 2**10]))),
    "expand": sized("Expand", ["images", "n"], constant("n", np.int64([2**40, 1, 1, 1, 1]))),
    "pad": sized("Pad", ["images", "n"], constant("n", np.int64([0, 0, 0, 0, 0, 0, 0, 2**40]))),
    "resize": sized(
        "Resize", ["images", "", "n"], constant("n", np.float32([1, 1, 2**20, 2**20]))
    ),
    "one-hot": sized(
        "OneHot", ["i", "n", "v"], constant("i", np.int64([1])), constant("n", np.int64(2**40)),
        constant("v", np.float32([0, 1])),
    ),
    "doubled 40 times": (bare_rows(*DOUBLED, NODE("Identity", ["v40"], ["big"])), [ROWS]),
    "computed shape": (
        bare_rows(
            NODE("Shape", ["images"], ["shape"]),
            NODE("Mul", ["shape", "n"], ["large"]),
            NODE("ConstantOfShape", ["large"], ["big"]),
        ),
        [ROWS, constant("n", np.int64([1, 1, 2**20, 2**20]))],
    ),
    "multiplied": (
        bare_rows(
            NODE("Reshape", ["images", "n"], ["column"]),
            NODE("Transpose", ["column"], ["line"], perm=[1, 0]),
            *(NODE("MatMul", ["column", "line"], [f"m{index}"]) for index in range(99)),
            NODE("MatMul", ["m0", "m1"], ["big"]),
        ),
        [ROWS, constant("n", np.int64([-1, 1]))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_takes_more_than_any_detector_is_refused_before_it_runs(tmp_path, name):
    nodes, initial = BOMBS[name]
    path = make_file(tmp_path / "a.onnx", nodes, initial)
    assert path.stat().st_size < 20_000
    refused(path, "its node .* takes more memory or time than any detector for images of")


HUGE = (16, 3, 16384, 16384)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_file_that_calls_its_images_huge_may_not_make_more_when_it_is_loaded(tmp_path, dynamic):
    """What no image decides is computed while a file is loaded."""
    nodes, initial = sized("ConstantOfShape", ["n"], constant("n", np.int64([10**11])))
    shape = ("b", 3, "h", "w") if dynamic else HUGE
    texts = own_texts(dynamic=dynamic, image_size=HUGE[2:], batch_size=HUGE[0])
    path = make_file(
        tmp_path / "a.onnx", nodes, initial, shape, (("b" if dynamic else 16, 1, 7),), texts
    )
    refused(path, "its node ConstantOfShape '' takes more memory or time")


@pytest.mark.parametrize("kind, taken", [("BOOL", True), ("DOUBLE", False)])
def test_bytes_are_counted_not_numbers(tmp_path, kind, taken):
    nodes = bare_rows(
        NODE("Cast", ["images"], ["other"], to=TensorProto.DataType.Value(kind)),
        NODE("Tile", ["other", "n"], ["many"]),
        NODE("Shape", ["many"], ["shape"]),
        NODE("Cast", ["shape"], ["big"], to=TensorProto.FLOAT),
    )
    # 11 million numbers, where 64 MiB are taken
    initial = [ROWS, constant("n", np.int64([1, 1, 60, 60]))]
    path = make_file(tmp_path / "a.onnx", nodes, initial)
    if taken:
        OnnxRuntime(path, 1)
    else:
        refused(path, "its node Tile '' takes more memory or time")


@pytest.mark.parametrize("kind", ["STRING", "INT4", "UINT4", "FLOAT8E4M3FN"])
def test_numbers_of_a_type_that_detectors_have_not_are_refused(tmp_path, kind):
    nodes, initial = detector_nodes()
    nodes.insert(0, NODE("Cast", ["place"], ["texts"], to=TensorProto.DataType.Value(kind)))
    path = make_file(tmp_path / "a.onnx", nodes, initial)
    model = onnx.load_model_from_string(path.read_bytes())
    model.opset_import[0].version = 21
    path.write_bytes(model.SerializeToString())
    refused(path, f"makes numbers of type {kind}, which")


@pytest.mark.parametrize("free", ["values", "size"])
def test_a_size_that_an_image_decides_is_refused(tmp_path, free):
    depends = {
        "values": [
            NODE("Cast", ["images"], ["whole"], to=TensorProto.INT64),
            NODE("ReduceMax", ["whole"], ["most"], keepdims=0),
        ],
        "size": [  # of which only a bound is known: less than that may mean more elsewhere
            NODE("NonZero", ["images"], ["found"]),
            NODE("Size", ["found"], ["most"]),
        ],
    }[free]
    nodes = [
        *depends,
        NODE("Sub", ["n", "most"], ["left"]),
        NODE("ConstantOfShape", ["left"], ["big"]),
    ]
    path = make_file(
        tmp_path / "a.onnx", bare_rows(*nodes), [ROWS, constant("n", np.int64([2**14]))]
    )
    refused(path, "the size that its node ConstantOfShape '' gives 'big' is not known")


@pytest.mark.parametrize("kind", [OnnxRuntime, OpenVinoRuntime])
def test_each_shape_of_a_dynamic_file_is_checked(tmp_path, kind):
    """The bomb is for images higher than the example."""
    nodes = bare_rows(
        NODE("Shape", ["images"], ["height"], start=2, end=3),
        NODE("Sub", ["height", "n"], ["above"]),
        NODE("Max", ["above", "zero"], ["more"]),
        NODE("Mul", ["more", "many"], ["large"]),
        NODE("ConstantOfShape", ["large"], ["big"]),
    )
    initial = [ROWS, *(constant(name, np.int64([value])) for name, value in
                       (("n", SIDE), ("zero", 0), ("many", 2**40)))]  # fmt: skip
    path = make_file(
        tmp_path / "a.onnx", nodes, initial, ("b", 3, "h", "w"), ((1, 1, 7),),
        own_texts(dynamic=True),
    )  # fmt: skip
    runtime = kind(path, 1)
    assert runtime(np.zeros(IMAGES, np.float32))[0].shape == (1, 1, 7)
    with pytest.raises(UserError, match="takes more memory or time"):
        runtime(np.zeros((1, 3, 2 * SIDE, SIDE), np.float32))


def test_only_so_many_nodes_are_computed_beforehand(tmp_path, monkeypatch):
    counted = [NODE("Add", [f"n{index}", "one"], [f"n{index + 1}"]) for index in range(9)]
    nodes = bare_rows(*counted, NODE("ConstantOfShape", ["n9"], ["big"]))
    initial = [ROWS, constant("n0", np.int64([1])), constant("one", np.int64([1]))]
    path = make_file(tmp_path / "a.onnx", nodes, initial)
    OnnxRuntime(path, 1)
    monkeypatch.setattr(onnx_sizes, "MOST_COMPUTED", 5)
    refused(path, "the size that its node ConstantOfShape '' gives 'big' is not known")


POOLS = {"kernel_shape": [319, 319], "pads": [159] * 4, "strides": [1, 1]}
WORK = {
    "pool": ((1, 3, 320, 320), [NODE("MaxPool", ["images"], ["big"], **POOLS)], []),
    "many inputs": (
        (1, 3, 320, 320), [NODE("Sum", ["images"] * 20_000, ["big"])], []
    ),
    "suppression": (
        (1, 3, 320, 320),
        [
            NODE("Reshape", ["images", "rows"], ["boxes"]),
            NODE("Reshape", ["column", "scored"], ["scores"]),
            NODE("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
            NODE("Cast", ["kept"], ["big"], to=TensorProto.FLOAT),
        ],
        [
            constant("rows", np.int64([1, -1, 4])),
            constant("column", np.zeros(76_800, np.float32)),
            constant("scored", np.int64([1, 1, -1])),
            constant("most", np.int64([10**6])),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_work_is_counted_where_nothing_is_multiplied(tmp_path, name):
    shape, nodes, initial = WORK[name]
    texts = own_texts(image_size=shape[2:])
    path = make_file(tmp_path / "a.onnx", bare_rows(*nodes), [ROWS, *initial], shape, texts=texts)
    operator = nodes[-2 if name == "suppression" else -1].op_type
    refused(path, f"its node {operator} '' takes more memory or time")


def test_a_node_of_many_inputs_is_refused(tmp_path):
    nodes, initial = detector_nodes()
    nodes.insert(0, NODE("Max", ["row"] * 50_000, ["most"]))
    refused(make_file(tmp_path / "a.onnx", nodes, initial), "over 50,000 inputs and outputs")


def test_a_number_is_converted_once_a_node_and_a_node_is_told_one_opset(tmp_path, monkeypatch):
    made, told = [], []
    nodes, initial = detector_nodes()
    nodes.insert(0, NODE("Max", ["row"] * 1000, ["most"]))
    domains = [f"d{index}" for index in range(100)]
    path = make_file(tmp_path / "a.onnx", nodes, initial, domains=domains)
    convert, infer = onnx.numpy_helper.from_array, onnx.shape_inference.infer_node_outputs
    monkeypatch.setattr(onnx.numpy_helper, "from_array", lambda x: made.append(x) or convert(x))
    monkeypatch.setattr(
        onnx.shape_inference,
        "infer_node_outputs",
        lambda *given, **more: told.append(more["opset_imports"]) or infer(*given, **more),
    )
    read_onnx(path)
    assert len(made) < 10 and len(told) == len(nodes)
    assert all([opset.domain for opset in each] == [""] for each in told)


@pytest.mark.parametrize("shape", [(0, 2**62), (2**31, 2**31, 0), (0,)])
def test_a_huge_side_beside_none_is_no_memory(tmp_path, shape):
    nodes = bare_rows(
        NODE("ConstantOfShape", ["shape"], ["none"]),
        NODE("Shape", ["none"], ["again"]),
        NODE("ConstantOfShape", ["again"], ["big"]),
    )
    path = make_file(tmp_path / "a.onnx", nodes, [ROWS, constant("shape", np.int64(shape))])
    try:
        assert OnnxRuntime(path, 1)(np.zeros(IMAGES, np.float32))[0].shape == (1, 1, 7)
    except UserError:
        assert max(shape) > 2**30


EMPTY = helper.make_graph([], "inner", [], [])


@pytest.mark.parametrize(
    "node, text",
    [
        (NODE("Evil", ["images"], ["out0"], domain="com.evil"), "operator 'com.evil.Evil' is not"),
        (NODE("EfficientNMS_TRT", ["images"], ["out0"], domain="TRT"), "runs only in TensorRT"),
        (NODE("Loop", ["n", ""], ["out0"]), "its operator 'Loop' is not supported"),
        (NODE("If", ["n"], ["out0"], then_branch=EMPTY), "operator 'If' has .* supported, g;"),
        (
            NODE("RandomNormal", [], ["out0"], shape=[1]),
            "operator 'RandomNormal' is not supported",
        ),
        (
            NODE("Relu", ["images"], ["out0"], body=EMPTY),
            "operator 'Relu' has .* supported, g;",
        ),
        (
            NODE("Relu", ["images"], ["out0"], a=[EMPTY]),
            "operator 'Relu' has .* supported, graphs;",
        ),
        (NODE("Relu", ["absent"], ["out0"]), "its node Relu ''"),
        (NODE("Conv", ["images"], ["out0"]), "its node Conv ''"),
    ],
)
def test_what_is_no_operator_of_a_detector_is_named(tmp_path, node, text):
    path = make_file(
        tmp_path / "a.onnx", [node], [constant("n", np.int64(2**60))], domains=["com.evil", "TRT"]
    )
    refused(path, text)


# What ends the process in ONNX Runtime, with no error that could be caught.


def divided(operator, by):
    """Return a graph that divides by numbers in it."""
    initial = [ROWS, constant("n", np.full(1, 64, by.dtype)), constant("by", by)]
    nodes = [NODE(operator, ["n", "by"], ["d"]), NODE("Cast", ["d"], ["big"], to=TensorProto.FLOAT)]
    return bare_rows(*nodes), initial


@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.parametrize("by", [np.int64([0]), np.int32([-1]), np.uint8([2, 0])])
def test_a_division_that_ends_the_process_is_refused(tmp_path, operator, by):
    path = make_file(tmp_path / "a.onnx", *divided(operator, by))
    refused(path, f"its node {operator} '' divides integers by numbers that are not positive")


def test_a_division_by_what_is_computed_is_refused(tmp_path):
    nodes, initial = divided("Div", np.int64([1]))
    nodes.insert(0, NODE("Shape", ["images"], ["shape"]))
    nodes[1].input[1] = "shape"
    refused(make_file(tmp_path / "a.onnx", nodes, initial), "divides integers by numbers that")


def test_a_division_by_a_positive_constant_runs(tmp_path):
    nodes, initial = divided("Div", np.int64([2]))
    of_node = NODE("Constant", [], ["by"], value=initial.pop())
    path = make_file(tmp_path / "a.onnx", [of_node, *nodes], initial)
    (found,) = OnnxRuntime(path, 1)(np.zeros(IMAGES, np.float32))
    np.testing.assert_array_equal(found, np.float32(32) + ROW)


@pytest.mark.parametrize(
    "operator, attributes",
    [
        ("Conv", {"strides": [0, 0]}),
        ("Conv", {"strides": [1, 0], "auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", {"group": 0}),
        ("ConvTranspose", {"strides": [0, 1]}),
        ("Conv", {"dilations": [-1, 1]}),
        ("MaxPool", {"strides": [0, 0], "kernel_shape": [2, 2]}),
    ],
)
def test_a_layer_whose_steps_are_0_is_refused(tmp_path, operator, attributes):
    weights = [] if operator == "MaxPool" else [constant("w", np.zeros((3, 3, 3, 3), np.float32))]
    node = NODE(operator, ["images", *(x.name for x in weights)], ["big"], **attributes)
    path = make_file(tmp_path / "a.onnx", bare_rows(node), [ROWS, *weights])
    refused(path, f"its node {operator} '' has (strides|group|dilations) .* 1 or more is accepted")


def with_external(path, location, size=ROW.nbytes, offset=0):
    """Write a detector whose row lies in another file."""
    nodes, initial = detector_nodes()
    row = next(tensor for tensor in initial if tensor.name == "row")
    row.ClearField("raw_data")
    row.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", size)):
        row.external_data.add(key=key, value=str(value))
    return make_file(path, nodes, initial)


def test_external_data_beside_the_model_are_read(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"12345678" + ROW.tobytes())
    runtime = OnnxRuntime(with_external(tmp_path / "a.onnx", "a.bin", offset=8), 1)
    np.testing.assert_array_equal(runtime(np.zeros(IMAGES, np.float32))[0], ROW)


@pytest.mark.parametrize("location", ["../a.bin", "/etc/passwd", "sub/a.bin", "..", ".", "", "l"])
def test_external_data_elsewhere_are_refused(tmp_path, location):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "a.bin", folder / "sub" / "a.bin"):
        path.write_bytes(ROW.tobytes())
    (folder / "l").symlink_to(tmp_path / "a.bin")
    refused(with_external(folder / "a.onnx", location), "only from a file in the model's folder")


@pytest.mark.parametrize(
    "size, offset, text",
    [
        (ROW.nbytes, 4, "damaged: 'a.bin' ends before"),
        (ROW.nbytes, -4, "names a wrong part"),
        (ROW.nbytes, 10**30, "damaged: 'a.bin' ends before"),
        (ROW.nbytes - 4, 0, "names a wrong part"),
        ("x", 0, "names a wrong part"),
    ],
)
def test_external_data_that_are_not_there_are_refused(tmp_path, size, offset, text):
    (tmp_path / "a.bin").write_bytes(ROW.tobytes())
    refused(with_external(tmp_path / "a.onnx", "a.bin", size, offset), text)


def test_an_absent_file_of_external_data_is_named(tmp_path):
    refused(with_external(tmp_path / "a.onnx", "gone.bin"), "external data 'gone.bin': No such")


@pytest.mark.parametrize("field", ["sparse_tensor", "sparse_tensors"])
def test_sparse_tensors_of_a_node_are_refused(tmp_path, field):
    """ONNX Runtime reads any file for one, or any address, and writes wherever its places say."""
    sparse = onnx.SparseTensorProto(
        dims=[2], values=constant("v", np.float32([1])), indices=constant("i", np.int64([10**12]))
    )
    node = NODE("Constant", [], ["c"], **{field: sparse if field[-1] == "r" else [sparse]})
    path = make_file(tmp_path / "a.onnx", [node, *detector_nodes()[0]], detector_nodes()[1])
    refused(path, f"operator 'Constant' has .* not supported, {field};")


def test_external_data_that_no_message_holds_are_refused_unread(tmp_path, monkeypatch):
    numbers = (2**31 - 1) // 4
    with (tmp_path / "a.bin").open("wb") as file:
        file.truncate(4 * numbers)  # takes no disk
    path = with_external(tmp_path / "a.onnx", "a.bin", 4 * numbers)
    model = onnx.load_model_from_string(path.read_bytes())
    row = next(tensor for tensor in model.graph.initializer if tensor.name == "row")
    row.dims[:] = [numbers]
    path.write_bytes(model.SerializeToString())
    monkeypatch.setattr(onnx_tensors, "open_regular", lambda path: pytest.fail("it was read"))
    refused(path, "it has more than 2,147,483,647 bytes with its external data")


@pytest.mark.parametrize("shape", [[1] * 100, [0, 2**62, 2**62], [0, 2**40], [-1, 0]])
def test_a_shape_that_numpy_does_not_take_is_refused(tmp_path, shape):
    nodes, initial = detector_nodes()
    one = [1.0] if 0 not in shape else []
    initial.append(TensorProto(name="odd", data_type=1, dims=shape, float_data=one))
    refused(make_file(tmp_path / "a.onnx", nodes, initial), "its tensor 'odd' has the shape")


def test_a_tensor_that_claims_more_numbers_than_it_has_is_refused(tmp_path):
    nodes, initial = detector_nodes()
    initial[-1].dims[:] = [2**40, 1, 7]
    refused(make_file(tmp_path / "a.onnx", nodes, initial), "damaged: its tensor 'row' has 28 byt")


def test_every_cut_of_a_file_is_refused(tmp_path):
    whole = write_detector(tmp_path / "whole.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError):
            read_onnx(path)


@pytest.mark.parametrize("text", [b"'cat'", b"stride", b"names", b"Squeeze", b"row", b"images"])
def test_texts_that_are_no_utf8_are_refused(tmp_path, text):
    path = write_detector(tmp_path / "a.onnx", texts=FOREIGN)
    path.write_bytes(path.read_bytes().replace(text, b"\xff" * len(text), 1))
    with pytest.raises(UserError):
        OnnxRuntime(path, 1)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"PK\x03\x04", b"\x08\x09" * 2048])
def test_what_is_no_onnx_is_refused(tmp_path, content):
    path = tmp_path / "a.onnx"
    path.write_bytes(content)
    refused(path, "damaged, or no ONNX file")


# Of another kind, by what the graph takes and returns.


@pytest.mark.parametrize("texts", [FOREIGN, None])
def test_another_task_is_refused_by_its_outputs(tmp_path, texts):
    shape = [constant("n", np.int64([1, -1]))]
    nodes = [NODE("Reshape", ["images", "n"], ["out0"])]
    path = make_file(tmp_path / "a.onnx", nodes, shape, outputs=((1, 3072),), texts=texts)
    refused(path, "it returns (3072 numbers by Reshape|.1, 3072.*its metadata says)")
    nodes, initial = detector_nodes()
    nodes.append(NODE("Identity", ["out0"], ["out1"]))
    path = make_file(
        tmp_path / "a.onnx", nodes, initial, outputs=((1, 1, 7), (1, 1, 7)), texts=texts
    )
    refused(path, "it returns (2 outputs, and its metadata says 1|.*a model of the public YOLOv5)")


def test_metadata_of_another_size_are_refused(tmp_path):
    path = write_detector(tmp_path / "a.onnx", texts=own_texts(image_size=[64, 64]))
    refused(path, r"takes \(1, 3, 32, 32\), and its metadata says \(1, 3, 64, 64\)")


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.UINT8, TensorProto.UNDEFINED])
def test_images_of_another_type_are_refused(tmp_path, kind):
    path = write_detector(tmp_path / "a.onnx")
    model = onnx.load_model_from_string(path.read_bytes())
    model.graph.input[0].type.tensor_type.elem_type = kind
    path.write_bytes(model.SerializeToString())
    refused(path, "it takes numbers of a type that is not its metadata's floats")


# Files of the public exporter tell names and stride alone.


def test_the_graph_tells_what_the_public_exporter_does_not(tmp_path):
    texts = {"stride": "32", "names": "{0: 'it\\'s', 1: \"étoile\"}".replace("\\'", "''")}
    metadata = read_onnx(write_detector(tmp_path / "a.onnx", 4, texts=texts)).metadata
    assert metadata.class_names == ("it's", "étoile")
    assert (metadata.stride, metadata.image_size, metadata.batch_size) == (32, (SIDE, SIDE), 4)
    assert not metadata.dynamic


def test_a_dynamic_file_of_the_public_exporter_is_dynamic(tmp_path):
    nodes, initial = detector_nodes()
    path = make_file(
        tmp_path / "a.onnx", nodes, initial, ("batch", 3, "height", "width"), (("b", "n", 7),),
        {"names": "['cat', 'dog']", "stride": "32"},
    )  # fmt: skip
    metadata = read_onnx(path).metadata
    assert metadata.dynamic and metadata.class_names == ("cat", "dog")
    (found,) = OnnxRuntime(path, 1)(np.zeros((2, 3, 64, 96), np.float32))
    assert found.shape == (2, 1, 7)


@pytest.mark.parametrize(
    "texts, text",
    [
        ({"names": "{0: 'a'}"}, "rows of 7 numbers, of which 1 class need 6"),
        ({"names": "{0: 'a', 2: 'b'}"}, "a name for each class is needed"),
        ({"names": "{0: 'a', 1: [b]}"}, "its metadata has class_names"),
        ({"names": "__import__('os').system('true')"}, "a name for each class is needed"),
        ({"names": "!!python/object/apply:os.system ['true']"}, "its metadata has names"),
        ({"names": "{0: 'a', 0: 'b'}"}, "appears twice"),
        ({"names": "[" * 100_000}, "its metadata has names"),
        ({"names": "x" * 2_000_000}, "its metadata has names of 2,000,000 characters"),
        ({"names": "&a [x, x, x, x]"}, "rows of 7"),
        ({"stride": "-32"}, "its metadata has stride -32"),
        ({"stride": "os.system('true')"}, "its metadata has stride"),
        ({"stride": "5"}, "no multiples of its stride 5"),
    ],
)
def test_texts_of_the_public_exporter_are_never_run(tmp_path, texts, text):
    refused(write_detector(tmp_path / "a.onnx", texts={**FOREIGN, **texts}), text)


def test_a_text_that_appears_twice_is_refused(tmp_path):
    path = write_detector(tmp_path / "a.onnx")
    model = onnx.load_model_from_string(path.read_bytes())
    model.metadata_props.add(key="stride", value="64")
    path.write_bytes(model.SerializeToString())
    refused(path, "its metadata has 'stride' twice")
