//! An HTTP/1.1 server of media files, with paced streams and one event loop a processor.
//!
//! Bytes are moved by the project's own methods.
//!
//! [`http`] knows requests and answers, and no sockets; [`site`] the files; [`delivery`] how a
//! file's bytes get into a socket, [`pace`] when; [`server`] runs the connections. [`container`]
//! tells how long a file plays, [`admission`] who may come. [`status`] shows people and programs
//! what it does. [`viewers`] is the other end: a crowd that takes streams and tells how late they
//! came.

pub mod admission;
mod audience;
pub mod container;
pub mod delivery;
pub mod http;
mod index_page;
pub mod measure;
pub mod pace;
pub mod policy;
pub mod server;
pub mod settings_file;
pub mod site;
pub mod slack;
pub mod status;
pub mod tls;
pub mod viewers;
