"""hubconf.py: what programs written for the public YOLOv5's hub models find here."""

import json

import numpy as np
import pytest
from PIL import Image, ImageShow

import hubconf
from duet import backend
from duet.models.detect.hub import HubResults, hub_views
from duet.utils.detect.media.source import Frame
from duet.utils.detect.results.result import Result
from duet.utils.errors import UserError
from tests.coco_reference import rows_as_detections
from tests.environments import shared_path
from tests.small import CLASS_NAMES, STRIDE, noise, write_tiny_weights

IMAGE = noise(64, 96)
SIZE = 64
ROUNDING = 1e-6  # float32 box arithmetic, relative


@pytest.fixture
def model(weights):
    return hubconf.custom(str(weights), device="cpu")


def golden(name):
    return json.loads(shared_path("golden/inference/info.json").read_text())[name]


def golden_results():
    results = []
    shapes = golden("results_image_shapes")
    for index, (rows, shape) in enumerate(zip(golden("results_predictions"), shapes, strict=True)):
        frame = Frame(np.zeros(shape, np.uint8), f"image{index}.jpg")
        results.append(Result(frame, rows_as_detections(rows), ("person", "bicycle", "bus")))
    return HubResults(results, (1.0, 2.0, 3.0), (3, 3, 640, 640))


def test_network_sees_images_in_public_shapes():
    cases = golden("autoshape")
    assert len(cases) == 100
    for case in cases:
        sizes = [
            # The wrapper takes fewer than five rows as channels in front.
            (shape[1:] if shape[0] < 5 else shape[:2])
            for shape in case["image_shapes"]
        ]
        images = [np.zeros((*size, 3), np.uint8) for size in sizes]
        size, stride = case["size"], int(case["max_stride"])
        long_side = max(size) if isinstance(size, list) else size
        views = hub_views(images, long_side, stride)
        seen = {view.pixels.shape for view in views}
        assert seen == {(*case["network_input"][2:], 3)}, case
        assert len(views) == case["network_input"][0]


def test_network_sees_public_pixels():
    stored = np.load(shared_path("golden/inference/autoshape_pixels.npz"))
    views = hub_views([stored["image0_rgb"], stored["image1_rgb"]], 128, 32)
    seen = np.stack([view.pixels.transpose(2, 0, 1) for view in views])
    np.testing.assert_array_equal(seen, stored["network_input_u8"])


def test_hub_accepts_the_public_array_layouts(model):
    cases = {(50, 60): (50, 60, 3), (3, 40, 60): (40, 60, 3), (40, 60, 4): (40, 60, 3)}
    for shape, seen in cases.items():
        results = model(np.zeros(shape, np.uint8), size=SIZE)
        assert results.ims[0].shape == seen
        assert results.files == ["image0.jpg"]


def test_hub_accepts_files_pillow_images_and_lists(model, tmp_path):
    path = tmp_path / "bus.png"
    Image.fromarray(IMAGE).save(path)
    results = model([str(path), path, IMAGE, Image.fromarray(IMAGE)], size=SIZE)
    assert results.files == ["bus.jpg", "bus.jpg", "image2.jpg", "image3.jpg"]
    assert results.s == (4, 3, 48, 64) and results.n == len(results) == 4
    first = ops_to_numpy(results.xyxy[0])
    assert len(first) > 5
    for other in results.xyxy:
        np.testing.assert_array_equal(ops_to_numpy(other), first)


def ops_to_numpy(tensor):
    return tensor.cpu().numpy()


def test_hub_settings_are_model_attributes(model):
    assert (model.conf, model.iou, model.max_det) == (0.25, 0.45, 1000)
    assert (model.classes, model.agnostic, model.multi_label) == (None, False, False)
    assert model.names == dict(enumerate(CLASS_NAMES)) and model.stride == STRIDE
    plain = ops_to_numpy(model(IMAGE, size=SIZE).xyxy[0])
    model.conf = 0.8
    sure = ops_to_numpy(model(IMAGE, size=SIZE).xyxy[0])
    # Fewer rows are decoded with a higher threshold, perhaps by other instructions.
    np.testing.assert_allclose(sure, plain[plain[:, 4] > 0.8], rtol=ROUNDING)
    model.classes, model.max_det = [1], 2
    some = ops_to_numpy(model(IMAGE, size=SIZE).xyxy[0])
    np.testing.assert_allclose(some, sure[sure[:, 5] == 1][:2], rtol=ROUNDING)
    model.classes, model.max_det, model.multi_label = None, 1000, True
    assert len(ops_to_numpy(model(IMAGE, size=SIZE).xyxy[0])) > len(sure)
    model.conf = 1.5
    with pytest.raises(UserError, match="--conf 1.5"):
        model(IMAGE, size=SIZE)


def test_old_public_names_are_accepted_or_refused(model, weights):
    results = model(IMAGE, size=SIZE, profile=True)
    assert results.imgs is results.ims
    assert hubconf.custom(path_or_model=weights, autoshape=True, _verbose=False).names
    for wrong in ({"autoshape": False}, {"channels": 4}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            hubconf.custom(weights, **wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'verbos'"):
        hubconf.yolov5n(pretrained=False, verbos=False)


def test_hub_model_moves_and_reports_its_precision(model, caplog):
    assert model.to("cpu") is model and model.cpu().eval().float() is model
    assert model.device == "cpu"
    assert model.half() is model
    assert "float32" in caplog.text
    if not backend.device.supports("cuda"):
        with pytest.raises(ValueError, match="available: cpu"):
            model.cuda()
    with pytest.raises(ValueError, match="tpu"):
        model.to("tpu")
    assert len(model(IMAGE, size=SIZE).xyxy) == 1


@pytest.mark.parametrize("kind", ["xyxy", "xyxyn", "xywh", "xywhn"])
def test_hub_boxes_match_stored_tensors_and_tables(kind):
    pytest.importorskip("pandas")
    results = golden_results()
    tables, tensors = getattr(results.pandas(), kind), getattr(results, kind)
    for stored, table, tensor in zip(golden("results_pandas")[kind], tables, tensors, strict=True):
        assert list(table.columns) == stored["columns"]
        numbers = [row[:6] for row in stored["rows"]]
        expected = np.array(numbers).reshape(-1, 6)
        np.testing.assert_allclose(ops_to_numpy(tensor), expected, rtol=ROUNDING)
        np.testing.assert_allclose(table.to_numpy()[:, :6].astype(float), expected, rtol=ROUNDING)
        assert table["name"].tolist() == [row[6] for row in stored["rows"]]
        if stored["rows"]:
            assert [str(dtype) for dtype in table.dtypes[:6]] == stored["dtypes"][:6]
    assert results.pred is results.xyxy


def test_hub_result_text_matches_the_stored_one(capsys):
    results = golden_results()
    assert str(results) == golden("results_text")
    results.print()
    printed = capsys.readouterr().out
    assert printed.startswith(golden("results_text"))
    assert "1.0 ms pre-process, 2.0 ms inference, 3.0 ms NMS" in printed


def test_hub_crops_match_stored_ones(tmp_path, capsys):
    crops = golden_results().crop(save_dir=tmp_path / "crops of bus")
    expected = golden("results_crop")
    assert len(crops) == len(expected) == 4
    for crop, stored in zip(crops, expected, strict=True):
        assert list(crop["im"].shape) == stored["im_shape"]
        assert {key: crop[key] for key in ("box", "conf", "cls", "label")} == {
            key: stored[key] for key in ("box", "conf", "cls", "label")
        }
    folder = tmp_path / "crops of bus"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*.jpg")}
    assert written == {
        "crops/bus/image0.jpg", "crops/person/image0.jpg", "crops/person/image02.jpg",
        "crops/bicycle/image1.jpg",
    }  # fmt: skip
    assert str(folder) in capsys.readouterr().out
    before = sorted(tmp_path.rglob("*"))
    assert len(golden_results().crop(save=False)) == 4
    assert sorted(tmp_path.rglob("*")) == before


def test_drawn_images_are_returned_and_saved(tmp_path):
    results = golden_results()
    drawn = results.render()
    assert drawn is results.ims and [image.shape for image in drawn] == [
        (120, 160, 3), (90, 60, 3), (50, 50, 3)
    ]  # fmt: skip
    assert drawn[0].any() and drawn[1].any() and not drawn[2].any()
    results.save(save_dir=tmp_path / "exp")
    results.save(labels=False, save_dir=tmp_path / "exp")
    for folder in (tmp_path / "exp", tmp_path / "exp2"):
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["image0.jpg", "image1.jpg", "image2.jpg"]
    with Image.open(tmp_path / "exp" / "image0.jpg") as saved:
        assert saved.size == (160, 120) and np.asarray(saved).any()
    with pytest.raises(UserError, match="file --name exp: could not create .*: File exists"):
        (tmp_path / "file").touch()
        results.save(save_dir=tmp_path / "file" / "exp")


def test_show_uses_a_viewer_or_names_the_next_step(monkeypatch):
    class Viewer(ImageShow.Viewer):
        shown = []

        def show(self, image, **options):
            self.shown.append((image.size, options["title"]))
            return 1

    monkeypatch.setattr(ImageShow, "_viewers", [Viewer()])
    golden_results().show()
    assert Viewer.shown == [
        ((160, 120), "image0.jpg"), ((60, 90), "image1.jpg"), ((50, 50), "image2.jpg")
    ]  # fmt: skip
    monkeypatch.setattr(ImageShow, "_viewers", [])
    with pytest.raises(UserError, match="no image viewer found"):
        golden_results().show()


def test_hub_default_size_is_the_training_size(weights, tmp_path, caplog):
    trained = write_tiny_weights(tmp_path, trained_size=48)
    model = hubconf.custom(str(trained), device="cpu")
    assert model(IMAGE).s == (1, 3, 32, 48) and caplog.messages == []
    assert model(IMAGE, size=SIZE).s == (1, 3, 48, 64) and caplog.messages == []
    assert model(IMAGE, size=160).s == model(IMAGE, size=160).s == (1, 3, 112, 160)
    assert caplog.messages == [f"{trained}: trained at 48 px, used at 160 px: expect worse results"]
    assert hubconf.custom(str(weights), device="cpu")(IMAGE).s == (1, 3, 432, 640)


def test_public_name_finds_weights_in_the_project(monkeypatch, tmp_path, weights):
    monkeypatch.setattr(hubconf, "PROJECT", tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "yolov5n.safetensors").write_bytes(weights.read_bytes())
    assert hubconf.yolov5n(device="cpu").names == dict(enumerate(CLASS_NAMES))
    assert len(hubconf.yolov5s(path=str(weights), device="cpu", classes=5).names) == 5
    with pytest.raises(UserError, match="classes=80.*has 5"):
        hubconf.yolov5n(classes=80, device="cpu")


def test_public_name_without_pretraining_builds_new_model():
    model = hubconf.yolov5n(pretrained=False, classes=3, device="cpu")
    assert model.names == {0: "class0", 1: "class1", 2: "class2"} and model.stride == 32
    assert model(IMAGE, size=SIZE).s == (1, 3, 64, 64)
    assert hubconf.yolov5n6(pretrained=False, device="cpu").stride == 64
