//! Failures inside this store, told apart by what to do about them.

use kukuri_store::StoreError;
use rustix::io::Errno;

/// A failure below the port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// LMDB or the file system failed.
    #[error("{0}")]
    Engine(#[from] heed::Error),
    /// Already in the port's words.
    #[error("{0}")]
    Port(#[from] StoreError),
    /// The code that decides or stores panicked.
    #[error("panicked")]
    Panic,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

pub(crate) fn engine(error: heed::Error) -> Failure {
    Failure::Engine(error)
}

/// Turns a damaged record into a failure.
pub(crate) fn damaged(what: impl Into<String>) -> Failure {
    Failure::Port(StoreError::Damaged(what.into()))
}

impl Failure {
    /// There was no room: the transaction is gone, the store is as before.
    pub(crate) fn is_full(&self) -> bool {
        use heed::MdbError;
        // What a file-size limit, a full disk and a quota say.
        const NO_ROOM: [i32; 3] =
            [Errno::FBIG.raw_os_error(), Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
        match self {
            Self::Engine(heed::Error::Mdb(MdbError::MapFull | MdbError::TxnFull)) => true,
            Self::Engine(heed::Error::Mdb(MdbError::Other(code))) => NO_ROOM.contains(code),
            Self::Engine(heed::Error::Io(error)) => error.raw_os_error().is_some_and(|code| NO_ROOM.contains(&code)),
            Self::Port(StoreError::Full(_)) => true,
            _ => false,
        }
    }

    /// The engine itself is in trouble: no single event is to blame.
    pub(crate) fn is_of_the_engine(&self) -> bool {
        use heed::MdbError;
        match self {
            Self::Engine(heed::Error::Mdb(MdbError::BadValSize | MdbError::KeyExist | MdbError::NotFound)) => false,
            Self::Engine(_) => true,
            Self::Port(_) | Self::Panic => false,
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
            other => Self::Engine(Box::new(other)),
        }
    }
}
