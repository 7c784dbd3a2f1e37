//! The header of a segment: what it is, and whether this program may map it.
//!
//! A header is judged as bytes of the file, before anything is mapped, and in an order that lets each error speak for
//! itself: what the file is, then for whom, then whether it is whole. Nothing is computed from parameters that the check sum
//! does not confirm, and nothing is believed that does not lead back to the very same header.

use crate::shared::segment::{At, Config, HEADER_UNITS, Layout, Uniform};

/// The first unit of every segment: the bytes "catcache".
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"catcache");
/// Version of the layout; to be raised with every change of it.
pub(crate) const VERSION: u64 = 2;
/// Reads differently on a machine of the other byte order.
pub(crate) const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;

/// Positions of the fields.
pub(super) mod field {
    use super::{At, HEADER_UNITS};

    pub(crate) const MAGIC: At = At(0);
    pub(crate) const VERSION: At = At(1);
    pub(crate) const BYTE_ORDER: At = At(2);
    /// Size of the segment in bytes.
    pub(crate) const BYTES: At = At(3);
    /// 1 once the header is complete: the last thing that a creator writes.
    pub(crate) const READY: At = At(4);
    /// The parameters of the layout, one unit each, and then the check sum over them.
    pub(crate) const PARAMETERS: At = At(5);
    pub(crate) const PARAMETER_COUNT: u32 = 12;
    pub(crate) const CHECK_SUM: At = At(PARAMETERS.0 + PARAMETER_COUNT);
    const _: () = assert!(CHECK_SUM.0 < HEADER_UNITS);
}

/// The parameters as the header holds them.
fn parameters(layout: &Layout) -> [u64; field::PARAMETER_COUNT as usize] {
    let c = &layout.config;
    [
        c.partitions.into(),
        layout.buckets.into(),
        c.stripes.into(),
        c.catalogs.into(),
        c.databases.into(),
        c.backends.into(),
        c.ring.into(),
        c.bytes,
        c.uniform.map_or(0, |uniform| uniform.slots.into()),
        c.uniform.map_or(0, |uniform| uniform.bytes.into()),
        c.plain_stripes.into(),
        c.lists.into(),
    ]
}

/// The whole header, ready.
pub(super) fn header_of(layout: &Layout) -> [u64; HEADER_UNITS as usize] {
    let mut units = [0; HEADER_UNITS as usize];
    units[field::MAGIC.0 as usize] = MAGIC;
    units[field::VERSION.0 as usize] = VERSION;
    units[field::BYTE_ORDER.0 as usize] = BYTE_ORDER;
    units[field::BYTES.0 as usize] = layout.bytes();
    units[field::READY.0 as usize] = 1;
    let parameters = self::parameters(layout);
    units[field::PARAMETERS.0 as usize..][..parameters.len()].copy_from_slice(&parameters);
    units[field::CHECK_SUM.0 as usize] = check_sum(&parameters);
    units
}

/// FNV-1a over the parameters: a damaged header is to be refused before anything is computed from it.
fn check_sum(parameters: &[u64]) -> u64 {
    parameters
        .iter()
        .flat_map(|unit| unit.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// What is wrong with a header, without the path that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    Foreign(u64),
    ByteOrder,
    Version(u64),
    NotReady,
    Size { expected: u64 },
    Damaged(String),
}

/// The layout of a segment whose header and file size these are. Fields are judged in an order that lets each error speak
/// for itself: what the file is, then for whom, then whether it is whole.
pub(super) fn judge(units: &[u64; HEADER_UNITS as usize], file_bytes: u64) -> Result<Layout, BadHeader> {
    let unit = |at: At| units[at.0 as usize];
    let magic = unit(field::MAGIC);
    if magic == 0 && unit(field::READY) == 0 {
        return Err(BadHeader::NotReady);
    }
    if magic != MAGIC {
        return Err(BadHeader::Foreign(magic));
    }
    let order = unit(field::BYTE_ORDER);
    if order == BYTE_ORDER.swap_bytes() {
        return Err(BadHeader::ByteOrder);
    }
    if unit(field::READY) == 0 {
        return Err(BadHeader::NotReady);
    }
    if order != BYTE_ORDER {
        return Err(BadHeader::Damaged(format!("byte-order tag {order:#x}")));
    }
    if unit(field::VERSION) != VERSION {
        return Err(BadHeader::Version(unit(field::VERSION)));
    }
    let expected = unit(field::BYTES);
    if expected != file_bytes {
        return Err(BadHeader::Size { expected });
    }
    let parameters = &units[field::PARAMETERS.0 as usize..][..field::PARAMETER_COUNT as usize];
    if unit(field::CHECK_SUM) != check_sum(parameters) {
        return Err(BadHeader::Damaged("the check sum of its parameters is wrong".into()));
    }
    let layout = config_of(parameters)
        .and_then(|config| Layout::new(&config).ok())
        .filter(|layout| self::parameters(layout)[..] == *parameters && layout.bytes() == expected);
    layout.ok_or_else(|| BadHeader::Damaged("its parameters contradict each other".into()))
}

fn config_of(parameters: &[u64]) -> Option<Config> {
    let small = |index: usize| u32::try_from(parameters[index]).ok();
    let partitions = small(0)?;
    Some(Config {
        partitions,
        buckets: small(1)?.checked_mul(partitions)?,
        stripes: small(2)?,
        lists: small(11)?,
        catalogs: small(3)?,
        databases: small(4)?,
        backends: small(5)?,
        ring: small(6)?,
        bytes: parameters[7],
        uniform: match (small(8)?, small(9)?) {
            (0, 0) => None,
            (slots, bytes) => Some(Uniform { slots, bytes }),
        },
        plain_stripes: match parameters[10] {
            0 => false,
            1 => true,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_believed_only_as_a_whole() {
        let layout = Layout::new(&Config { bytes: 4 << 20, ..Config::default() }).unwrap();
        let header = header_of(&layout);
        assert_eq!(judge(&header, layout.bytes()), Ok(layout.clone()));
        assert_eq!(judge(&header, layout.bytes() - 4096), Err(BadHeader::Size { expected: layout.bytes() }));
        let judged = |at: At, value: u64| {
            let mut header = header;
            header[at.0 as usize] = value;
            judge(&header, layout.bytes())
        };
        assert_eq!(judged(field::MAGIC, 7), Err(BadHeader::Foreign(7)));
        assert_eq!(judged(field::BYTE_ORDER, BYTE_ORDER.swap_bytes()), Err(BadHeader::ByteOrder));
        assert!(matches!(judged(field::BYTE_ORDER, 0), Err(BadHeader::Damaged(_))));
        assert_eq!(judged(field::VERSION, VERSION + 1), Err(BadHeader::Version(VERSION + 1)));
        assert_eq!(judged(field::READY, 0), Err(BadHeader::NotReady));
        assert_eq!(judged(field::BYTES, 1), Err(BadHeader::Size { expected: 1 }));
        for parameter in 0..field::PARAMETER_COUNT {
            for value in [0, 1, 3, u64::MAX] {
                let at = field::PARAMETERS + parameter;
                if header[at.0 as usize] != value {
                    assert!(matches!(judged(at, value), Err(BadHeader::Damaged(_))), "parameter {parameter}, {value}");
                }
            }
        }
        assert!(matches!(judged(field::CHECK_SUM, 0), Err(BadHeader::Damaged(_))));
        assert_eq!(judge(&[0; HEADER_UNITS as usize], 4096), Err(BadHeader::NotReady));
    }

    /// Even with the right check sum, parameters that contradict each other are refused, and no sum overflows.
    #[test]
    fn a_forged_header_is_refused() {
        let layout = Layout::new(&Config::tiny()).unwrap();
        for parameter in 0..field::PARAMETER_COUNT {
            for value in [0, 1, 2, 3, 1 << 30, 1 << 32, u64::MAX] {
                let mut header = header_of(&layout);
                let parameters = field::PARAMETERS.0 as usize..(field::PARAMETERS + field::PARAMETER_COUNT).0 as usize;
                let unit = &mut header[parameters.start + parameter as usize];
                if *unit == value {
                    continue;
                }
                *unit = value;
                header[field::CHECK_SUM.0 as usize] = check_sum(&header[parameters]);
                match judge(&header, layout.bytes()) {
                    // Some parameters don't show in the size: then the layout is another one, but sound.
                    Ok(other) => assert_eq!(other.bytes(), layout.bytes()),
                    Err(bad) => assert!(matches!(bad, BadHeader::Damaged(_)), "{parameter} {value}: {bad:?}"),
                }
            }
        }
    }
}
