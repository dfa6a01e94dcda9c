//! Internal errors of this store, classified by how to handle them.

use kukuri_store::StoreError;
use rustix::io::Errno;

/// An error below the store port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// LMDB or the file system failed.
    #[error("{0}")]
    Backend(#[from] heed::Error),
    /// Already an error of the port.
    #[error("{0}")]
    Port(#[from] StoreError),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Backend(heed::Error::Io(error))
    }
}

/// A failure for a damaged record.
pub(crate) fn damaged(what: impl Into<String>) -> Failure {
    Failure::Port(StoreError::Damaged(what.into()))
}

impl Failure {
    /// The disk or the map is full: the transaction is aborted, the store is unchanged.
    pub(crate) fn is_full(&self) -> bool {
        use heed::MdbError;
        // The errors of a file-size limit, a full disk and a quota.
        const NO_ROOM: [i32; 3] =
            [Errno::FBIG.raw_os_error(), Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
        match self {
            Self::Backend(heed::Error::Mdb(MdbError::MapFull | MdbError::TxnFull)) => true,
            Self::Backend(heed::Error::Mdb(MdbError::Other(code))) => NO_ROOM.contains(code),
            Self::Backend(heed::Error::Io(error)) => error.raw_os_error().is_some_and(|code| NO_ROOM.contains(&code)),
            Self::Port(StoreError::Full(_)) => true,
            _ => false,
        }
    }

    /// LMDB itself failed: no single event is the cause.
    pub(crate) fn is_backend_failure(&self) -> bool {
        use heed::MdbError;
        match self {
            Self::Backend(heed::Error::Mdb(MdbError::BadValSize | MdbError::KeyExist | MdbError::NotFound)) => false,
            Self::Backend(_) => true,
            Self::Port(_) => false,
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        if failure.is_full() {
            return Self::Full(failure.to_string());
        }
        match failure {
            Failure::Port(error) => error,
            other => Self::Backend(Box::new(other)),
        }
    }
}
