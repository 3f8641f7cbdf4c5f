//! NVIDIA's cards as the kernel lists them: asking these files wakes none, asking NVML does.

use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/sys/bus/pci/devices";
/// Names another folder.
const FOLDER_VARIABLE: &str = "EDGEWARD_NVML_PCI";
/// NVIDIA's, by <https://pci-ids.ucw.cz/read/PC/10de>.
const VENDOR: &str = "0x10de";
/// A display controller of any kind (class 03), by the PCI Code and ID Assignment Specification.
const CLASS: &str = "0x03";

/// One of them.
pub struct Card {
    /// `0000:01:00.0`.
    pub name: String,
    folder: PathBuf,
}

impl Card {
    /// Whether the kernel has let it fall asleep. What is on its way there or back is left alone as well.
    pub fn sleeps(&self) -> bool {
        let status = text(&self.folder.join("power/runtime_status"));
        // "unsupported" and nothing at all: it never sleeps.
        matches!(status.as_str(), "suspended" | "suspending" | "resuming")
    }

    /// Whether the kernel lets it fall asleep when nobody uses it.
    pub fn may_sleep(&self) -> bool {
        text(&self.folder.join("power/control")) == "auto"
    }

    /// Its address as a number: 16 bits of domain, 8 of bus, 8 of device.
    pub fn address(&self) -> u32 {
        let parts = self.name.split([':', '.']).map(|part| u32::from_str_radix(part, 16).unwrap_or(0));
        parts.take(3).zip([16, 8, 0]).fold(0, |all, (part, shift)| all | part << shift)
    }
}

/// All of them, in the order in which NVML numbers them: that of their addresses. None on a Jetson, whose GPU is on no
/// bus.
pub fn all() -> Vec<Card> {
    let folder = std::env::var(FOLDER_VARIABLE).unwrap_or_else(|_| FOLDER.to_owned());
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut cards: Vec<Card> = entries
        .flatten()
        .map(|entry| Card { name: entry.file_name().to_string_lossy().into_owned(), folder: entry.path() })
        .filter(|card| {
            text(&card.folder.join("vendor")) == VENDOR && text(&card.folder.join("class")).starts_with(CLASS)
        })
        .collect();
    cards.sort_by(|a, b| a.name.cmp(&b.name));
    cards
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_number() {
        let card = |name: &str| Card { name: name.to_owned(), folder: PathBuf::new() };
        assert_eq!(card("0000:01:00.0").address(), 0x0000_0100);
        assert_eq!(card("000f:a1:1f.0").address(), 0x000f_a11f);
        assert_eq!(card("nonsense").address(), 0);
    }
}
