-- Ids are UUIDs in their text form; times are UTC. Names are compared byte by byte (COLLATE "C"), so that their order
-- does not depend on the server's locale. Columns named spec, policy, scopes and allowed_models hold JSON text.

-- One row. Its version rises with every committed change; locking it is what makes writers wait for each other.
CREATE TABLE IF NOT EXISTS config_version (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL
);
INSERT INTO config_version (id, version) VALUES (1, 1) ON CONFLICT (id) DO NOTHING;

CREATE TABLE IF NOT EXISTS organizations (
    id         TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE IF NOT EXISTS teams (
    id                      TEXT COLLATE "C" PRIMARY KEY,
    org_id                  TEXT COLLATE "C" NOT NULL REFERENCES organizations (id),
    name                    TEXT COLLATE "C" NOT NULL,
    monthly_budget_nano_usd BIGINT NOT NULL,
    allowed_models          TEXT NOT NULL,
    created_at              TIMESTAMPTZ NOT NULL,
    UNIQUE (org_id, name),
    UNIQUE (id, org_id)
);

-- The pair (team_id, org_id) keeps a key from naming a team of another organization.
CREATE TABLE IF NOT EXISTS api_keys (
    id         TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    hash       BYTEA NOT NULL UNIQUE,
    prefix     TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    org_id     TEXT COLLATE "C" REFERENCES organizations (id),
    team_id    TEXT COLLATE "C",
    policy     TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    revoked_at TIMESTAMPTZ,
    FOREIGN KEY (team_id, org_id) REFERENCES teams (id, org_id),
    CHECK (team_id IS NULL OR org_id IS NOT NULL)
);
CREATE INDEX IF NOT EXISTS api_keys_org ON api_keys (org_id, team_id);

CREATE TABLE IF NOT EXISTS vendor_keys (
    key_id      TEXT COLLATE "C" NOT NULL REFERENCES api_keys (id),
    vendor      TEXT COLLATE "C" NOT NULL,
    sealed      BYTEA NOT NULL,
    fingerprint TEXT NOT NULL,
    updated_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (key_id, vendor)
);

CREATE TABLE IF NOT EXISTS models (
    id   TEXT COLLATE "C" PRIMARY KEY,
    spec TEXT NOT NULL
);

-- The ordinal keeps the order in which rules of one priority were given.
CREATE TABLE IF NOT EXISTS rules (
    ordinal  INTEGER PRIMARY KEY,
    priority INTEGER NOT NULL,
    spec     TEXT NOT NULL
);
