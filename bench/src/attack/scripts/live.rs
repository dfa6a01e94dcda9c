//! Subscriptions that are never answered.

use std::{fmt::Write as _, io};

use crate::attack::attacker::{Attacker, TOPIC};

/// The most connections of one address, subscriptions of one connection, and filters of one subscription.
const CONNECTIONS: usize = 50;
const SUBSCRIPTIONS: usize = 64;
const FILTERS: usize = 20;

/// Opens as many live filters as it may, of kinds that nobody publishes. All are dropped when the attack ends.
pub(super) async fn filters(attacker: Attacker) {
    attacker
        .on_each(CONNECTIONS, async |connection| {
            let mut client = attacker.connection().await;
            for subscription in 0..SUBSCRIPTIONS {
                let mut message = format!(r#"["REQ","s{subscription}""#);
                for filter in 0..FILTERS {
                    let kind = 65_535 - (connection * SUBSCRIPTIONS + subscription) * FILTERS % 20_000 - filter;
                    let _ = write!(message, r##",{{"#t":["{TOPIC}"],"kinds":[{kind}],"limit":0}}"##);
                }
                message.push(']');
                loop {
                    attacker.number();
                    client.send_text(&message).await.map_err(io::Error::other)?;
                    if is_open(&mut client).await? {
                        attacker.counts.accepted();
                        break;
                    }
                    attacker.counts.refused();
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
            // Stays, and listens.
            loop {
                client.receive().await.map_err(io::Error::other)?;
            }
        })
        .await;
}

/// Waits for the answer to a REQ.
async fn is_open(client: &mut kukuri_testing::Connection) -> io::Result<bool> {
    loop {
        let text = client.receive().await.map_err(io::Error::other)?;
        if text.starts_with(br#"["EOSE""#) {
            return Ok(true);
        }
        if text.starts_with(br#"["CLOSED""#) {
            return Ok(false);
        }
    }
}
