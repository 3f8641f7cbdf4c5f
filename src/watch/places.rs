//! Where this box tells of its memory: the board's files, the cgroup that counts, the cards.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::{Board, Memory};
use crate::limits;
use crate::memory::board::{Found, detect};

/// Where cgroups are, version 2 and 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// The beginning of a small file; empty where there is none.
fn head(path: impl AsRef<Path>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let most = u64::try_from(limits::MEMORY_FILE_BYTES).unwrap_or(u64::MAX);
        // What could be read is what is known.
        let _partly = file.take(most).read_to_end(&mut bytes);
    }
    bytes
}

fn text(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&head(path)).trim().to_owned()
}

/// Where graphics cards are.
const CARDS: &str = "/sys/class/drm";

/// The folders of graphics cards in `folder`.
fn cards(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut cards: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            // Not its connectors, as card0-HDMI-A-1.
            name.to_str().and_then(|name| name.strip_prefix("card")).is_some_and(|n| n.parse::<u16>().is_ok())
        })
        .map(|entry| entry.path().join("device"))
        .collect();
    cards.sort();
    cards
}

/// Which board this is, and by what that is known: the configuration's, or found out.
#[must_use]
pub fn board(config: &Memory) -> (Board, &'static str) {
    if let Some(board) = config.board {
        return (board, "the configuration says so");
    }
    let product = [head("/sys/class/dmi/id/product_name"), head("/proc/device-tree/model")].concat();
    detect(&Found {
        compatible: head("/proc/device-tree/compatible"),
        tegra_release: head("/etc/nv_tegra_release"),
        product,
        nvidia: Path::new("/proc/driver/nvidia").exists(),
        vendors: cards(Path::new(CARDS)).iter().map(|card| text(card.join("vendor"))).collect(),
    })
}

/// An AMD card with memory of its own: its folder.
#[must_use]
pub fn card() -> Option<PathBuf> {
    card_in(Path::new(CARDS))
}

fn card_in(folder: &Path) -> Option<PathBuf> {
    cards(folder).into_iter().find(|card| {
        let total = text(card.join("mem_info_vram_total")).parse::<u64>();
        total.is_ok_and(|bytes| bytes >= limits::MEMORY_CARD_BYTES)
    })
}

/// The cgroup whose limit the model server meets: the configuration's, or one that it shares with edgeward, as in a
/// container.
#[must_use]
pub fn group(config: &Memory) -> Option<PathBuf> {
    config.cgroup.clone().or_else(|| shared_group(&text("/proc/self/cgroup"), &|folder| has_limit(folder)))
}

/// Whether it has a limit that a model server may live in. In a container of edgeward alone the limit is edgeward's, and
/// small.
fn has_limit(folder: &Path) -> bool {
    // Version 1 has "no limit" as 2^63 less a page; more than any box has is none.
    const FILES: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = FILES.iter().filter_map(|file| text(folder.join(file)).parse::<u64>().ok()).min();
    limit.is_some_and(|bytes| (limits::MEMORY_GROUP_LEAST..1 << 60).contains(&bytes))
}

/// From `/proc/self/cgroup`: edgeward's own, or one around it, that has a limit. The limit of its own unit is not the
/// model server's.
fn shared_group(cgroup: &str, has_limit: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        if !path.starts_with('/') {
            continue;
        }
        let root = match kinds {
            "" => GROUPS[0],
            kinds if kinds.split(',').any(|kind| kind == "memory") => GROUPS[1],
            _ => continue,
        };
        let own = path.trim_start_matches('/');
        let below = Path::new(own).ancestors().skip(usize::from(own.ends_with(".service")));
        folders.extend(below.map(|path| Path::new(root).join(path)));
    }
    folders.into_iter().find(|folder| has_limit(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cgroup: &str, limited: &[&str]) -> Option<String> {
        let has = |folder: &Path| {
            limited.iter().any(|limited| Path::new(limited) == folder.components().collect::<PathBuf>())
        };
        shared_group(cgroup, &has).map(|path| path.components().collect::<PathBuf>().display().to_string())
    }

    #[test]
    fn the_limit_that_counts_is_one_that_the_server_shares() {
        let unit = "0::/system.slice/edgeward.service";
        let own = "/sys/fs/cgroup/system.slice/edgeward.service";
        assert_eq!(found(unit, &[own]), None, "its own unit's MemoryMax= is not the server's");
        let slice = "/sys/fs/cgroup/system.slice";
        assert_eq!(found(unit, &[own, slice]).as_deref(), Some(slice));
        assert_eq!(found("0::/", &["/sys/fs/cgroup"]).as_deref(), Some("/sys/fs/cgroup"), "a container");
        assert_eq!(found("0::/", &[]), None);
        let old = "9:name=systemd:/\n4:cpu,memory:/docker/1\n0::/\n";
        assert_eq!(found(old, &["/sys/fs/cgroup/memory"]).as_deref(), Some("/sys/fs/cgroup/memory"));
        let inner = "/sys/fs/cgroup/memory/docker/1";
        assert_eq!(found(old, &["/sys/fs/cgroup/memory", inner]).as_deref(), Some(inner));
        assert_eq!(found("nonsense\n::\n", &["/sys/fs/cgroup"]), None);
    }

    #[test]
    fn a_limit_too_small_for_a_model_server_is_edgewards_own() {
        let folder = std::env::temp_dir().join(format!("edgeward-places-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (max, high, want) in [
            ("268435456", "max", false),
            ("8589934592", "268435456", false),
            ("max", "max", false),
            ("8589934592", "max", true),
            ("max", "8589934592", true),
            ("9223372036854771712", "max", false),
        ] {
            fs::write(folder.join("memory.max"), format!("{max}\n")).unwrap();
            fs::write(folder.join("memory.high"), format!("{high}\n")).unwrap();
            assert_eq!(has_limit(&folder), want, "{max} {high}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_amd_card_with_memory_of_its_own_is_found_beside_what_has_little() {
        let folder = std::env::temp_dir().join(format!("edgeward-cards-{}", std::process::id()));
        // As in /sys/class/drm: a card inside the processor, a connector, a card without such files, and one with 16 GiB.
        for (name, total) in [
            ("card0", Some("536870912\n")),
            ("card0-HDMI-A-1", Some("17163091968\n")),
            ("card1", None),
            ("card10", Some("17163091968\n")),
            ("renderD128", Some("17163091968\n")),
        ] {
            let device = folder.join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), "0x1002\n").unwrap();
            if let Some(total) = total {
                fs::write(device.join("mem_info_vram_total"), total).unwrap();
            }
        }
        assert_eq!(card_in(&folder), Some(folder.join("card10/device")));
        assert_eq!(cards(&folder).len(), 3);
        fs::remove_dir_all(folder.join("card10")).unwrap();
        assert_eq!(
            card_in(&folder),
            None,
            "what a processor sets aside for its graphics is the box's memory"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_the_configuration_says_is_not_looked_for() {
        let config = Memory { board: Some(Board::DgxSpark), cgroup: Some("/x".into()), ..Memory::default() };
        assert_eq!(board(&config).0, Board::DgxSpark);
        assert_eq!(group(&config), Some("/x".into()));
    }
}
