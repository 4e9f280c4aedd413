"""The inspector page, in a real browser."""

from __future__ import annotations

import shutil

import pytest
import torch
import transformers as hf

import turbine_lite
from turbine_lite.diagnostics.inspection import read_mlir


def _vit():
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
    return hf.ViTForImageClassification(hf.ViTConfig(image_size=64, **sizes)).eval(), torch.randn(1, 3, 64, 64)


@pytest.fixture(scope="module")
def vit_page(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "vit.html"
    model, images = _vit()
    with torch.no_grad():
        turbine_lite.profile(model, images, runs=2, options={"extern": "none"}).to_html(file, "ViT <small>")
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no chromium and chromedriver here")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"),
        *("disable-component-update", "disable-sync", "window-size=1800,1000"),
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(f"--{flag}")
    with selenium.Chrome(options, selenium.ChromeService(driver)) as chrome:
        yield chrome


def _lines(browser, pane, state=""):
    return browser.find_elements("css selector", f'section[data-pane="{pane}"] .line{state}')


def _open(browser, file):
    browser.get(file.as_uri())
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_click_on_a_line_of_python_lights_its_counterparts(vit_page, browser, tmp_path):
    assert vit_page.stat().st_size < 5 << 20
    _open(browser, vit_page)
    panes = [pane.get_attribute("data-pane") for pane in browser.find_elements("css selector", "section")]
    assert panes == ["source", "FX", "torch dialect", "IREE input", "dispatches"]
    (line,) = [line for line in _lines(browser, "source", ".linked") if "self.fc1(hidden_states)" in line.text]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", line)
    line.click()
    lit = {pane: [one.get_attribute("textContent") for one in _lines(browser, pane, ".lit")] for pane in panes}
    assert any("fc1" in text for text in lit["source"])
    assert sum("aten.addmm" in text or "aten.mm" in text for text in lit["FX"]) >= 4
    assert any("torch.aten.mm" in text or "torch.aten.addmm" in text for text in lit["torch dialect"])
    assert any("linalg.matmul" in text for text in lit["IREE input"])
    assert any("matmul" in text and " ms " in text for text in lit["dispatches"])
    assert len(lit["torch dialect"]) < len(_lines(browser, "torch dialect")) / 2
    assert browser.save_screenshot(str(tmp_path / "vit.png"))
    # Dispatches lead back. Those that matter are listed by measured time, so which ones come first differs.
    leads_to = []
    for dispatch in _lines(browser, "dispatches", ".linked"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", dispatch)
        dispatch.click()
        lit = [[one.get_attribute("textContent") for one in _lines(browser, pane, ".lit")] for pane in ("FX", "source")]
        leads_to.append(["".join(lines) for lines in lit])
    assert all(graph and source for graph, source in leads_to)
    assert any("layer_norm" in graph and "layernorm" in source for graph, source in leads_to)
    assert any("addmm" in graph and "self.fc1(hidden_states)" in source for graph, source in leads_to)


def test_search(vit_page, browser):
    _open(browser, vit_page)
    field, found = browser.find_element("id", "search"), browser.find_element("id", "found")
    field.send_keys("LINALG.\n")
    _until(browser, lambda: found.text.startswith("1 of "))
    field.clear()
    field.send_keys("native_layer_norm\n")
    _until(browser, lambda: found.text.startswith("1 of "))
    count = int(found.text.split()[-1])
    assert count == len(browser.find_elements("css selector", ".line.match")) > 1
    field.send_keys("\n")
    _until(browser, lambda: found.text == f"2 of {count}")
    field.clear()
    field.send_keys("no such thing\n")
    _until(browser, lambda: found.text == "nothing found")


def _until(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20).until(lambda _: condition())


def test_regions_and_fallbacks(browser, tmp_path):
    def function(x):
        y = torch.softmax(x.exp() * 2 + 1, -1)
        return torch.special.airy_ai(y).sin() * 3 - 1

    turbine_lite.explain(function, torch.rand(4, 5)).to_html(tmp_path / "page.html")
    _open(browser, tmp_path / "page.html")
    (airy,) = _lines(browser, "FX", ".eager")
    assert "special_airy_ai" in airy.text
    assert "torch-mlir has no such operator" in airy.get_attribute("title")
    assert _lines(browser, "FX", ".r0")
    assert _lines(browser, "FX", ".r1")
    assert not _lines(browser, "dispatches")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    assert dark != browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_text_cannot_end_the_script(tmp_path):
    def function(x):
        return x.sin() * 2 + 1  # </script><script>alert(1)</script>

    turbine_lite.explain(function, torch.rand(5)).to_html(tmp_path / "page.html", "</script>")
    page = (tmp_path / "page.html").read_text()
    assert page.count("</script>") == 1
    assert "<\\/script>" in page


_MLIR = """\
module {
  func.func @main(%arg0: tensor<4xf32> loc("fx/arg0_1":0:0)) -> tensor<4xf32> {
    %0 = torch.aten.sin %arg0 : tensor<4xf32> loc(#loc3)
    %1 = linalg.generic {maps = [(d0) -> (d0)]} ins(%0 : tensor<4xf32>) {
    ^bb0(%in: f32 loc(unknown)):
      linalg.yield %in : f32 loc(fused[#loc3, "fx/mul":0:0])
    } -> tensor<4xf32> loc(callsite("fx/mul":0:0 at "/a (b)/m.py":3:0))
    return %1 : tensor<4xf32> loc(#loc)
  } loc(#loc1)
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc("fx/output":0:0)
#loc2 = loc("fx/sin":0:0)
#loc3 = loc(callsite(#loc2 at #loc4))
#loc4 = loc("/a/m.py":2:0)
"""


def test_locations_are_read_and_left_out():
    lines = read_mlir(_MLIR)
    assert len(lines) == 10
    assert all("loc(" not in line.text for line in lines)
    assert lines[1].text == "  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {"
    assert [line.nodes for line in lines[2:8]] == [("sin",), ("mul",), (), ("mul", "sin"), ("mul",), ()]
    assert lines[6].text == "    } -> tensor<4xf32>"
