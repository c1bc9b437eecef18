//! The page's frame: the script fills it from the data.

use maud::{DOCTYPE, PreEscaped, html};

/// JSON inside a script element must not end it: `<` is written as an escape, which JSON allows in strings, the only
/// place where it stands.
fn embedded(data: &str) -> String {
    data.replace('<', "\\u003c")
}

pub(super) fn page(data: &str) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                link rel="icon" href="data:,";
                title { "shardgrad lab" }
                style { (PreEscaped(include_str!("lab.css"))) }
            }
            body {
                header {
                    h1 { "shardgrad lab" }
                    p { "A network of two layers on a few devices: step through a plan, see what each rank holds, and break it. "
                        "All numbers were computed by the runtime, one thread a device; this page only shows them." }
                    noscript { p { "This page needs JavaScript to show its numbers." } }
                }
                main {
                    section aria-labelledby="step-title" {
                        h2 id="step-title" { "A plan, step by step" }
                        p id="model" {}
                        div.controls {
                            fieldset { legend { "Devices" } div id="devices" {} }
                            fieldset { legend { label for="layout" { "Layout" } } select id="layout" {} }
                            fieldset { legend { "Fault" } div id="faults" {} }
                        }
                        p id="note" role="status" {}
                        div.steps {
                            div.left {
                                div.buttons {
                                    button id="first" type="button" aria-label="First step" { "«" }
                                    button id="previous" type="button" aria-label="Previous step" { "‹" }
                                    span id="count" {}
                                    button id="next" type="button" aria-label="Next step" { "›" }
                                    button id="last" type="button" aria-label="Last step" { "»" }
                                }
                                ol id="list" tabindex="0" aria-label="Steps" {}
                            }
                            div id="stage" aria-live="polite" {}
                        }
                        h3 { "What it comes to" }
                        p { "The network's output, the loss and the gradients, beside those of one device." }
                        div id="verdict" {}
                    }
                    section aria-labelledby="map-title" {
                        h2 id="map-title" { "A linear map, whole and split" }
                        p { "M = [[a, b], [0, a]] scales by a and shears by b. A row x is multiplied by it: x·M. Split by columns, each rank makes "
                            "some elements of the product, complete; split by rows, each rank makes a term of all of them, and the terms are added." }
                        div.controls {
                            fieldset { legend { label for="scale" { "Diagonal scale a" } } input id="scale" type="range"; output id="scale-value" for="scale" {} }
                            fieldset { legend { label for="shear" { "Shear b" } } input id="shear" type="range"; output id="shear-value" for="shear" {} }
                            fieldset { legend { "Move" } button id="map-step" type="button" { "Step" } " " button id="map-reset" type="button" { "Reset" } }
                        }
                        div.map {
                            figure { svg id="plane" viewBox="-5 -5 10 10" role="img" aria-label="The unit square and its image under M" {} figcaption { "Dashed: the unit square. Filled: where the map takes it, on its way after Step." } }
                            div id="map-values" {}
                        }
                    }
                }
                script id="data" type="application/json" { (PreEscaped(embedded(data))) }
                script { (PreEscaped(include_str!("lab.js"))) }
            }
        }
    }
    .into_string()
}
