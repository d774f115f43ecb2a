"""Headless Chromium for tests, with a page that is drawn."""

import shutil

import pytest

SECONDS = 30


def start_chromium():
    """A browser, to be quit by whoever asked for it."""
    # Here, so that the other tests do without selenium.
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail("Chromium is missing: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = browser
    # The sandbox needs rights that containers lack; the page is our own.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=Service(driver))


def drawn_page(chromium, address):
    """The page, freshly drawn on a bright screen of 1280 pixels."""
    resize(chromium, 1280)
    media(chromium, scheme="light")
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    chromium.get(address)
    until(chromium, "return document.documentElement.dataset.drawn === 'true'")
    return chromium


def resize(chromium, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def media(chromium, scheme, medium=""):
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},  # clicks do not wait for scrolling
    ]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})


def until(chromium, script, *arguments):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(chromium, SECONDS, poll_frequency=0.05).until(
        lambda driver: driver.execute_script(script, *arguments), f"waited for {script}"
    )


def assert_fits(page, width):
    """Asserts that on a screen so wide nothing but tables, within themselves, scrolls sideways."""
    resize(page, width)
    until(
        page,
        "return [...document.querySelectorAll('.chart')].every((place) =>"
        "place.querySelector('svg').clientWidth <= place.clientWidth + 1)",
    )
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def luminance(colour):
    """Of a CSS colour such as `rgb(1, 2, 3)`."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Of two CSS colours."""
    bright, dim = sorted(map(luminance, (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def assert_harmless(page):
    """Asserts that no name on a page became a part of it: those of tests would set `window.bad`."""
    assert page.execute_script("return window.bad") is None
    assert page.get_log("browser") == []
    scripts = page.find_elements("tag name", "script")
    assert len(scripts) == page.page_source.count("<script")
    for tag in ("img", "iframe", "b", "u"):
        assert page.find_elements("tag name", tag) == [], tag
    handlers = (
        "return [...document.querySelectorAll('*')].filter((one) => [...one.attributes].some("
        "({name}) => name.startsWith('on'))).length"
    )
    assert page.execute_script(handlers) == 0
