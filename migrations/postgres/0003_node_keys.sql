-- A node id may stand in several active rows: a key is replaced by handing out its successor before it is revoked.
-- allowed_models and allowed_cidrs hold JSON text.
CREATE TABLE IF NOT EXISTS node_keys (
    id             TEXT COLLATE "C" PRIMARY KEY,
    name           TEXT COLLATE "C" NOT NULL UNIQUE,
    node_id        TEXT COLLATE "C" NOT NULL,
    hash           BYTEA NOT NULL UNIQUE,
    prefix         TEXT NOT NULL,
    allowed_models TEXT NOT NULL,
    allowed_cidrs  TEXT NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    revoked_at     TIMESTAMPTZ
);
