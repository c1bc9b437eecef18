//! Ctrl-C and requests to terminate: work ends at the next step, so that what is saved is whole. A second one ends the
//! process at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, INTERRUPTED};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on an interruption is noted instead of ending the process.
pub(crate) fn watch() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .map_err(|error| Failure::no(format!("interruptions cannot be watched for: {error}")))
}

/// Whether somebody asked for an end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
