//! The pages in a real browser, headless Chromium: the lab's numbers are the library's, every fault can be switched on, no
//! error reaches the console, no request leaves the page, and nothing is wider than a phone.
//!
//! Without `chromedriver` on the path the test says SKIPPED and passes.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use shardgrad::Training;
use shardgrad::graph::{Activation, LayerSpec, Loss, MlpSpec, Value as Tensor, eval};
use support::succeed;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A driver, which goes when it is dropped, and what it logs of the browser.
struct Driver {
    _process: Child,
    port: String,
    log: PathBuf,
}

/// `None`, and a line that says so, if there is none.
async fn driver() -> Option<Driver> {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chromedriver.log");
    let spawned = Command::new("chromedriver")
        .arg("--port=0")
        .arg("--log-level=DEBUG")
        .arg(format!("--log-path={}", log.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut process) = spawned else {
        println!("SKIPPED: no chromedriver on the path, so no page was opened");
        return None;
    };
    let mut lines = BufReader::new(process.stdout.take().expect("standard output")).lines();
    while let Some(line) = lines.next_line().await.expect("a line") {
        if let Some((_, port)) = line.split_once("successfully on port ") {
            let port = port.trim_end_matches('.').to_owned();
            return Some(Driver { _process: process, port, log });
        }
    }
    panic!("chromedriver ended without naming its port");
}

impl Driver {
    async fn browser(&self, width: u32) -> Client {
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ];
        let capabilities = json!({
            "goog:chromeOptions": {
                "args": arguments,
                "mobileEmulation": { "deviceMetrics": { "width": width, "height": 900, "pixelRatio": 1.0 } },
            },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities.as_object().expect("an object").clone())
            .connect(&format!("http://127.0.0.1:{}", self.port))
            .await
            .expect("a session")
    }

    /// What went wrong in the browser so far, and every address that it asked for.
    fn faults_and_addresses(&self) -> (Vec<String>, Vec<String>) {
        let log = std::fs::read(&self.log).expect("the driver's log");
        let log = String::from_utf8_lossy(&log);
        let faults = ["Runtime.exceptionThrown", "\"level\": \"error\"", "\"type\": \"error\""];
        let faults = log.lines().filter(|l| faults.iter().any(|f| l.contains(f)));
        let mut addresses = Vec::new();
        let mut request = false;
        for line in log.lines() {
            request |= line.contains("DEVTOOLS EVENT: Network.requestWillBeSent ")
                || line.contains("DevTools WebSocket Event: Network.requestWillBeSent ");
            if request && let Some((_, url)) = line.split_once("\"url\": \"") {
                addresses.push(url.trim_end_matches([',', '"']).to_owned());
                request = false;
            }
        }
        (faults.map(str::to_owned).collect(), addresses)
    }
}

async fn open(browser: &Client, page: &str) {
    browser.goto(&format!("file://{page}")).await.expect("the page opens");
}

async fn run(browser: &Client, script: &str, arguments: Vec<Value>) -> Value {
    browser.execute(script, arguments).await.expect("the script runs")
}

async fn click(browser: &Client, selector: &str) {
    let found = browser.find(Locator::Css(selector)).await.expect(selector);
    found.click().await.expect(selector);
}

async fn text(browser: &Client, selector: &str) -> String {
    browser.find(Locator::Css(selector)).await.expect(selector).text().await.expect(selector)
}

/// Chooses a layout by its name.
async fn choose_layout(browser: &Client, name: &str) {
    let script = "const s = document.getElementById('layout');
        s.value = [...s.options].find((o) => o.text === arguments[0]).value;
        s.dispatchEvent(new Event('change'));";
    run(browser, script, vec![json!(name)]).await;
}

/// The numbers of the tables in the current step: those of every rank's result, and the sum's if there is one.
const RESULTS: &str = "return [...document.querySelectorAll('#stage .rank .result')]
    .map((t) => [...t.querySelectorAll('td')].map((d) => Number(d.textContent)));";

fn numbers(value: &Value) -> Vec<Vec<f64>> {
    serde_json::from_value(value.clone()).expect("lists of numbers")
}

/// The model that the page says it shows.
fn training() -> Training {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    Training::of(MlpSpec {
        layers: vec![layer(3, 6, Activation::Relu), layer(6, 2, Activation::None)],
        loss: Loss::Mse,
        input_gradient: true,
        ..MlpSpec::new("two layers", 4)
    })
}

/// The gradients of the numbers that the page shows for inputs and parameters, computed by the library.
async fn gradients(browser: &Client) -> BTreeMap<String, Vec<f64>> {
    let program = training().program().expect("a program");
    choose_layout(browser, "replicated").await;
    let mut leaves = BTreeMap::new();
    for id in program.leaves() {
        let node = program.node(id);
        let name = node.leaf_name().expect("a name").to_owned();
        let script = "const item = [...document.querySelectorAll('#list li[data-step]')]
            .find((li) => li.children[1].textContent.split(', ').includes(arguments[0]));
            item.click(); return item.dataset.step;";
        run(browser, script, vec![json!(name)]).await;
        let shown = numbers(&run(browser, RESULTS, vec![]).await).swap_remove(0);
        assert_eq!(shown.len(), node.ty.elements(), "{name}");
        leaves.insert(name, Tensor::from_fn(&node.ty, |i| shown[i]));
    }
    let outputs = eval::evaluate_outputs(&program, &leaves).expect("it evaluates");
    outputs.into_iter().map(|(name, value)| (name, value.to_f64s())).collect()
}

/// The row of a value: its expected numbers, whether the doctor calls it equal, and what it says.
const VERDICT: &str =
    "return [...document.querySelectorAll('#verdict tr[data-value]')].map((row) => ({
    name: row.dataset.value,
    expected: [...row.children[1].querySelectorAll('td')].map((d) => Number(d.textContent)),
    says: row.children[3].textContent,
    equal: row.children[3].classList.contains('ok') }));";

async fn every_plan_and_every_fault(browser: &Client) {
    let right = gradients(browser).await;
    let mut faults = 0;
    for devices in [2, 3, 4] {
        click(browser, &format!("#devices-{devices}")).await;
        let names = run(
            browser,
            "return [...document.querySelectorAll('#layout option')].map((o) => o.text);",
            vec![],
        )
        .await;
        for name in names.as_array().expect("layouts") {
            let name = name.as_str().expect("a name");
            choose_layout(browser, name).await;
            for fault in 0..5 {
                let selector = format!("#fault-{fault}");
                let radio = browser.find(Locator::Css(&selector)).await.expect("a fault");
                if !radio.is_enabled().await.expect("a state") {
                    continue;
                }
                radio.click().await.expect("a click");
                let check = text(browser, "#check").await;
                let rows = run(browser, VERDICT, vec![]).await;
                let rows = rows.as_array().expect("rows");
                assert!(!rows.is_empty(), "{name} on {devices}, fault {fault}");
                for row in rows {
                    let value = row["name"].as_str().expect("a name");
                    if let Some(expected) = right.get(value) {
                        let shown: Vec<f64> =
                            serde_json::from_value(row["expected"].clone()).expect("numbers");
                        let close =
                            shown.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 0.0005);
                        assert!(
                            close && shown.len() == expected.len(),
                            "{value}: {shown:?}, {expected:?}"
                        );
                    }
                }
                let wrong: Vec<&Value> =
                    rows.iter().filter(|row| row["equal"] == json!(false)).collect();
                if fault == 0 {
                    assert_eq!(check, "check: the plan is right");
                    assert!(wrong.is_empty(), "{name} on {devices}: {wrong:?}");
                } else {
                    faults += 1;
                    // Blocks put together in the wrong order are no fault of the plan.
                    assert_eq!(
                        check == "check: the plan is right",
                        fault == 4,
                        "{name} on {devices}: {check}"
                    );
                    assert!(!wrong.is_empty(), "{name} on {devices}, fault {fault}");
                }
            }
            click(browser, "#fault-0").await;
        }
    }
    assert!(faults > 30, "only {faults} faults could be switched on");
}

async fn stepping(browser: &Client) {
    click(browser, "#devices-3").await;
    choose_layout(browser, "megatron").await;
    click(browser, "#first").await;
    let mut sums = 0;
    for step in 1.. {
        let count = text(browser, "#count").await;
        assert!(count.starts_with(&format!("step {step} of ")), "{count}");
        let results = numbers(&run(browser, RESULTS, vec![]).await);
        if results.len() == 4 {
            // Three terms and their sum.
            sums += 1;
            for (i, &sum) in results[3].iter().enumerate() {
                assert!((results[..3].iter().map(|term| term[i]).sum::<f64>() - sum).abs() < 0.002);
            }
        }
        if !browser
            .find(Locator::Css("#next"))
            .await
            .expect("a button")
            .is_enabled()
            .await
            .expect("a state")
        {
            break;
        }
        click(browser, "#next").await;
    }
    assert!(sums >= 2, "the product and the input's gradient are pending");
}

async fn linear_map(browser: &Client) {
    let set = "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'));";
    run(browser, set, vec![json!("scale"), json!(8)]).await;
    run(browser, set, vec![json!("shear"), json!(1)]).await;
    let shown = "return document.getElementById('map-values').textContent;";
    let before = run(browser, shown, vec![]).await;
    // a = 2, b = −1.5; x = (2, 1): x·M = (4, −3 + 2).
    let expected = "determinant 4, x·M = [4, -1].";
    assert!(before.as_str().expect("text").contains(expected), "{before}");
    click(browser, "#map-step").await;
    let moving = run(browser, shown, vec![]).await;
    assert_eq!(before, moving, "readouts are of the final map, also while it moves");
    let done = "const done = arguments[arguments.length - 1];
        const look = () => { const p = document.querySelector('#plane .image').getAttribute('points');
            if (p === '0,0 2,1.5 2,-0.5 0,-2') done(true); else setTimeout(look, 50); }; look();";
    assert_eq!(browser.execute_async(done, vec![]).await.expect("it arrives"), json!(true));
    click(browser, "#map-reset").await;
    let unit = "return document.querySelector('#plane .image').getAttribute('points');";
    assert_eq!(run(browser, unit, vec![]).await, json!("0,0 1,0 1,-1 0,-1"));
}

/// Pixels by which the page is wider than the window.
async fn too_wide(browser: &Client) -> i64 {
    let script =
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth;";
    run(browser, script, vec![]).await.as_i64().expect("a number")
}

#[test]
fn pages_work_in_a_browser() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let Some(driver) = driver().await else { return };
        let place = |name: &str| format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
        let (lab, report) = (place("browser_lab.html"), place("browser_report.html"));
        succeed(&format!("lab -o {lab}"));
        succeed(&format!("compare --mesh dp=2,tp=2 --format html -o {report}"));
        for width in [1280, 390] {
            let browser = driver.browser(width).await;
            for page in [&lab, &report] {
                open(&browser, page).await;
                assert_eq!(too_wide(&browser).await, 0, "{page} at {width} pixels");
            }
            if width == 1280 {
                open(&browser, &lab).await;
                every_plan_and_every_fault(&browser).await;
                stepping(&browser).await;
                linear_map(&browser).await;
            }
            browser.close().await.expect("the session ends");
        }
        let (faults, addresses) = driver.faults_and_addresses();
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(addresses.iter().any(|a| a.starts_with("file:")), "{addresses:?}");
        let inside = |a: &String| {
            a.starts_with("file:") || a.starts_with("data:") || a.starts_with("about:")
        };
        assert!(addresses.iter().all(inside), "{addresses:?}");
    });
}
