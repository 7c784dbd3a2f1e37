//! How long PostgreSQL's catalog rows and their keys are, cache by cache.
//!
//! The traces name a row by its cache and its hash; they hold neither key nor row. Both are made here, with the lengths
//! that PostgreSQL 15.18 has. Where a length was measured as the chunk of memory that a `CatCTup` with its row
//! takes (a power of two after a header of 16 bytes), the row is what is left of it when the `CatCTup` (104 bytes) is
//! taken off: at most that long, so memory per row is not understated. All other lengths are estimates from the widths
//! of the catalog's columns, and [`Basis`] says which is which.

use crate::trace::CACHES;

/// The header that PostgreSQL's allocator puts before each chunk.
pub const CHUNK_HEADER: usize = 16;

/// PostgreSQL's own header of a cached row.
pub const CATCTUP: usize = 104;

/// The row that fills a measured chunk.
const fn row_in_chunk(chunk: usize) -> usize {
    chunk - CHUNK_HEADER - CATCTUP
}

/// Where a length comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measured on PostgreSQL 15.18, as a row or as a chunk.
    Measured,
    /// Added up from the widths of the columns.
    Estimated,
}

/// A system catalog.
#[derive(Debug)]
pub struct Catalog {
    /// Its name.
    pub name: &'static str,
    /// The length of a row with its header, in bytes.
    pub row: usize,
    /// Where that comes from.
    pub basis: Basis,
    /// Is it one for all databases?
    pub shared: bool,
}

const fn measured(name: &'static str, row: usize) -> Catalog {
    Catalog { name, row, basis: Basis::Measured, shared: false }
}

const fn estimated(name: &'static str, row: usize) -> Catalog {
    Catalog { name, row, basis: Basis::Estimated, shared: false }
}

const fn shared(name: &'static str, row: usize) -> Catalog {
    Catalog { name, row, basis: Basis::Estimated, shared: true }
}

/// Chunks of 528 bytes for tables with a primary key; a partition has a row of [`PARTITION_ROW`].
static CLASS: Catalog = measured("pg_class", row_in_chunk(528));
static INDEX: Catalog = measured("pg_index", row_in_chunk(528));
static ATTRIBUTE: Catalog = measured("pg_attribute", row_in_chunk(272));
static STATISTIC: Catalog = measured("pg_statistic", row_in_chunk(2_064));
static AGGREGATE: Catalog = estimated("pg_aggregate", 104);
static AM: Catalog = estimated("pg_am", 104);
static AMOP: Catalog = estimated("pg_amop", 56);
static AMPROC: Catalog = estimated("pg_amproc", 48);
static CAST: Catalog = estimated("pg_cast", 48);
static COLLATION: Catalog = estimated("pg_collation", 120);
static CONSTRAINT: Catalog = estimated("pg_constraint", 208);
static NAMESPACE: Catalog = estimated("pg_namespace", 104);
static OPCLASS: Catalog = estimated("pg_opclass", 120);
static OPERATOR: Catalog = estimated("pg_operator", 136);
static PARTITIONED: Catalog = estimated("pg_partitioned_table", 120);
static PROC: Catalog = estimated("pg_proc", 200);
static RANGE: Catalog = estimated("pg_range", 56);
static TYPE: Catalog = estimated("pg_type", 184);
static OTHER: Catalog = estimated("another catalog", 128);
static AUTHID: Catalog = shared("pg_authid", 112);
static AUTH_MEMBERS: Catalog = shared("pg_auth_members", 40);
static DATABASE: Catalog = shared("pg_database", 152);
static TABLESPACE: Catalog = shared("pg_tablespace", 104);
static SHARED_OTHER: Catalog = shared("another shared catalog", 128);

/// The row of a partition in `pg_class`, with its `relpartbound` (measured).
pub const PARTITION_ROW: usize = 710;

/// Cases in which the relations looked up are partitions, but for a handful.
const PARTITION_CASES: [&str; 2] = ["d_part", "partscan"];

/// The key columns of a cache, as far as their length goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// An oid.
    Oid,
    /// An oid and a number (of an attribute).
    OidNumber,
    /// Two oids.
    TwoOids,
    /// A name of 12 letters.
    Name,
    /// A name of 12 letters and an oid.
    OidName,
    /// More than two columns.
    Wide,
}

impl Columns {
    /// The length of the key's canonical bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Columns::Oid => 4,
            Columns::OidNumber | Columns::TwoOids => 8,
            Columns::Name => 12,
            Columns::OidName | Columns::Wide => 16,
        }
    }

    /// Does PostgreSQL keep a part of the key in a chunk of its own when there is no row that holds it?
    pub const fn by_reference(self) -> bool {
        matches!(self, Columns::Name | Columns::OidName)
    }
}

/// One of PostgreSQL's catcaches.
#[derive(Debug)]
pub struct Cache {
    /// Its name in `enum SysCacheIdentifier`.
    pub name: &'static str,
    /// Whose rows it holds.
    pub catalog: &'static Catalog,
    /// What it is keyed by.
    pub columns: Columns,
}

impl Cache {
    /// The length of a row of this cache in the trace `case`.
    pub fn row(&self, case: &str) -> usize {
        if self.catalog.name == CLASS.name && PARTITION_CASES.contains(&case) {
            PARTITION_ROW
        } else {
            self.catalog.row
        }
    }
}

const fn cache(name: &'static str, catalog: &'static Catalog, columns: Columns) -> Cache {
    Cache { name, catalog, columns }
}

/// The catcaches of PostgreSQL 15, by their number.
pub static CATCACHES: [Cache; CACHES as usize] = [
    cache("AGGFNOID", &AGGREGATE, Columns::Oid),
    cache("AMNAME", &AM, Columns::Name),
    cache("AMOID", &AM, Columns::Oid),
    cache("AMOPOPID", &AMOP, Columns::Wide),
    cache("AMOPSTRATEGY", &AMOP, Columns::Wide),
    cache("AMPROCNUM", &AMPROC, Columns::Wide),
    cache("ATTNAME", &ATTRIBUTE, Columns::OidName),
    cache("ATTNUM", &ATTRIBUTE, Columns::OidNumber),
    cache("AUTHMEMMEMROLE", &AUTH_MEMBERS, Columns::TwoOids),
    cache("AUTHMEMROLEMEM", &AUTH_MEMBERS, Columns::TwoOids),
    cache("AUTHNAME", &AUTHID, Columns::Name),
    cache("AUTHOID", &AUTHID, Columns::Oid),
    cache("CASTSOURCETARGET", &CAST, Columns::TwoOids),
    cache("CLAAMNAMENSP", &OPCLASS, Columns::Wide),
    cache("CLAOID", &OPCLASS, Columns::Oid),
    cache("COLLNAMEENCNSP", &COLLATION, Columns::Wide),
    cache("COLLOID", &COLLATION, Columns::Oid),
    cache("CONDEFAULT", &OTHER, Columns::Wide),
    cache("CONNAMENSP", &OTHER, Columns::OidName),
    cache("CONSTROID", &CONSTRAINT, Columns::Oid),
    cache("CONVOID", &OTHER, Columns::Oid),
    cache("DATABASEOID", &DATABASE, Columns::Oid),
    cache("DEFACLROLENSPOBJ", &OTHER, Columns::Wide),
    cache("ENUMOID", &OTHER, Columns::Oid),
    cache("ENUMTYPOIDNAME", &OTHER, Columns::OidName),
    cache("EVENTTRIGGERNAME", &OTHER, Columns::Name),
    cache("EVENTTRIGGEROID", &OTHER, Columns::Oid),
    cache("FOREIGNDATAWRAPPERNAME", &OTHER, Columns::Name),
    cache("FOREIGNDATAWRAPPEROID", &OTHER, Columns::Oid),
    cache("FOREIGNSERVERNAME", &OTHER, Columns::Name),
    cache("FOREIGNSERVEROID", &OTHER, Columns::Oid),
    cache("FOREIGNTABLEREL", &OTHER, Columns::Oid),
    cache("INDEXRELID", &INDEX, Columns::Oid),
    cache("LANGNAME", &OTHER, Columns::Name),
    cache("LANGOID", &OTHER, Columns::Oid),
    cache("NAMESPACENAME", &NAMESPACE, Columns::Name),
    cache("NAMESPACEOID", &NAMESPACE, Columns::Oid),
    cache("OPERNAMENSP", &OPERATOR, Columns::Wide),
    cache("OPEROID", &OPERATOR, Columns::Oid),
    cache("OPFAMILYAMNAMENSP", &OTHER, Columns::Wide),
    cache("OPFAMILYOID", &OTHER, Columns::Oid),
    cache("PARAMETERACLNAME", &SHARED_OTHER, Columns::Name),
    cache("PARAMETERACLOID", &SHARED_OTHER, Columns::Oid),
    cache("PARTRELID", &PARTITIONED, Columns::Oid),
    cache("PROCNAMEARGSNSP", &PROC, Columns::Wide),
    cache("PROCOID", &PROC, Columns::Oid),
    cache("PUBLICATIONNAME", &OTHER, Columns::Name),
    cache("PUBLICATIONNAMESPACE", &OTHER, Columns::Oid),
    cache("PUBLICATIONNAMESPACEMAP", &OTHER, Columns::TwoOids),
    cache("PUBLICATIONOID", &OTHER, Columns::Oid),
    cache("PUBLICATIONREL", &OTHER, Columns::Oid),
    cache("PUBLICATIONRELMAP", &OTHER, Columns::TwoOids),
    cache("RANGEMULTIRANGE", &RANGE, Columns::Oid),
    cache("RANGETYPE", &RANGE, Columns::Oid),
    cache("RELNAMENSP", &CLASS, Columns::OidName),
    cache("RELOID", &CLASS, Columns::Oid),
    cache("REPLORIGIDENT", &SHARED_OTHER, Columns::Oid),
    cache("REPLORIGNAME", &SHARED_OTHER, Columns::Name),
    cache("RULERELNAME", &OTHER, Columns::OidName),
    cache("SEQRELID", &OTHER, Columns::Oid),
    cache("STATEXTDATASTXOID", &OTHER, Columns::OidNumber),
    cache("STATEXTNAMENSP", &OTHER, Columns::OidName),
    cache("STATEXTOID", &OTHER, Columns::Oid),
    cache("STATRELATTINH", &STATISTIC, Columns::OidNumber),
    cache("SUBSCRIPTIONNAME", &SHARED_OTHER, Columns::OidName),
    cache("SUBSCRIPTIONOID", &SHARED_OTHER, Columns::Oid),
    cache("SUBSCRIPTIONRELMAP", &OTHER, Columns::TwoOids),
    cache("TABLESPACEOID", &TABLESPACE, Columns::Oid),
    cache("TRFOID", &OTHER, Columns::Oid),
    cache("TRFTYPELANG", &OTHER, Columns::TwoOids),
    cache("TSCONFIGMAP", &OTHER, Columns::Wide),
    cache("TSCONFIGNAMENSP", &OTHER, Columns::OidName),
    cache("TSCONFIGOID", &OTHER, Columns::Oid),
    cache("TSDICTNAMENSP", &OTHER, Columns::OidName),
    cache("TSDICTOID", &OTHER, Columns::Oid),
    cache("TSPARSERNAMENSP", &OTHER, Columns::OidName),
    cache("TSPARSEROID", &OTHER, Columns::Oid),
    cache("TSTEMPLATENAMENSP", &OTHER, Columns::OidName),
    cache("TSTEMPLATEOID", &OTHER, Columns::Oid),
    cache("TYPENAMENSP", &TYPE, Columns::OidName),
    cache("TYPEOID", &TYPE, Columns::Oid),
    cache("USERMAPPINGOID", &OTHER, Columns::Oid),
    cache("USERMAPPINGUSERSERVER", &OTHER, Columns::TwoOids),
    cache("EXTENSIONOID", &OTHER, Columns::Oid),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_rows_fill_the_measured_chunks() {
        for (catalog, chunk) in [(&CLASS, 528), (&INDEX, 528), (&ATTRIBUTE, 272), (&STATISTIC, 2_064)] {
            let wanted = (catalog.row + CATCTUP).next_power_of_two() + CHUNK_HEADER;
            assert_eq!((wanted, catalog.basis), (chunk, Basis::Measured), "{}", catalog.name);
        }
        assert_eq!((PARTITION_ROW + CATCTUP).next_power_of_two() + CHUNK_HEADER, 1_040);
    }

    #[test]
    fn partitions_are_longer_only_where_there_are_partitions() {
        let relations = &CATCACHES[55];
        assert_eq!(relations.name, "RELOID");
        assert_eq!((relations.row("partscan"), relations.row("simple")), (710, 408));
        assert_eq!(CATCACHES[80].row("partscan"), TYPE.row);
    }

    #[test]
    fn the_shared_catalogs_are_postgresqls() {
        let shared = CATCACHES.iter().filter(|cache| cache.catalog.shared).map(|cache| cache.name);
        let expected = [
            "AUTHMEMMEMROLE",
            "AUTHMEMROLEMEM",
            "AUTHNAME",
            "AUTHOID",
            "DATABASEOID",
            "PARAMETERACLNAME",
            "PARAMETERACLOID",
            "REPLORIGIDENT",
            "REPLORIGNAME",
            "SUBSCRIPTIONNAME",
            "SUBSCRIPTIONOID",
            "TABLESPACEOID",
        ];
        assert!(shared.eq(expected));
    }
}
