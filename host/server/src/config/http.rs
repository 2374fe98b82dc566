//! `http`: the side port for monitoring.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::check::Checker;
use super::raw::RawHttp;

/// `http`: what monitoring and load balancers ask over plain HTTP: `/metrics`, `/healthz`, `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// `listen`: where. Default `auto`. Name an address for a server that is watched from elsewhere: nothing can be changed
    /// through it, but names of pools, workers' states and policies can be read.
    pub listen: HttpListen,
    /// `buildbarn_metrics`: the counters of Buildbarn's scheduler, under its names, as well. Default true. They are as many samples again; set
    /// it to false where nobody reads them.
    pub buildbarn_metrics: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: HttpListen::default(), buildbarn_metrics: true }
    }
}

/// Where the side port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpListen {
    /// At [`HttpListen::AUTO`], if that is free; else there is none, which the log says.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// There, or the server does not start.
    At(SocketAddr),
}

impl HttpListen {
    /// Where `auto` is.
    pub const AUTO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8981);
}

impl fmt::Display for HttpListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl FromStr for HttpListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::At).map_err(|_| {
                format!(
                    "{text:?} is no address: give \"IP:PORT\", \"auto\" ({}, if that is free) or \"off\"",
                    Self::AUTO
                )
            }),
        }
    }
}

impl<'de> Deserialize<'de> for HttpListen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = HttpListen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"IP:PORT\", \"auto\" or \"off\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HttpListen, E> {
        text.parse().map_err(E::custom)
    }
}

impl Serialize for HttpListen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Checker {
    pub(super) fn http(&mut self, raw: &RawHttp, listen: SocketAddr) -> Http {
        let http = Http {
            listen: raw.listen.unwrap_or_default(),
            buildbarn_metrics: raw.buildbarn_metrics.unwrap_or(Http::default().buildbarn_metrics),
        };
        if http.listen == HttpListen::At(listen) && listen.port() != 0 {
            self.wrong(
                "http.listen",
                format!("{listen} is where clients and workers connect (listen); give another port"),
            );
        }
        http
    }
}
