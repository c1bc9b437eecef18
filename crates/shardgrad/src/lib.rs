//! shardgrad
