-- Ids are UUIDs in their text form; times are UTC. Columns named spec, policy, scopes and allowed_models hold JSON text.

-- One row. Its version rises with every committed change.
CREATE TABLE IF NOT EXISTS config_version (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
);
INSERT INTO config_version (id, version) VALUES (1, 1) ON CONFLICT (id) DO NOTHING;

-- NOT NULL is said beside PRIMARY KEY: SQLite alone lets a text primary key be NULL.
CREATE TABLE IF NOT EXISTS organizations (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    created_at TIMESTAMP NOT NULL
);

CREATE TABLE IF NOT EXISTS teams (
    id                      TEXT NOT NULL PRIMARY KEY,
    org_id                  TEXT NOT NULL REFERENCES organizations (id),
    name                    TEXT NOT NULL,
    monthly_budget_nano_usd INTEGER NOT NULL,
    allowed_models          TEXT NOT NULL,
    created_at              TIMESTAMP NOT NULL,
    UNIQUE (org_id, name),
    UNIQUE (id, org_id)
);

-- The pair (team_id, org_id) keeps a key from naming a team of another organization.
CREATE TABLE IF NOT EXISTS api_keys (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    hash       BLOB NOT NULL UNIQUE,
    prefix     TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    org_id     TEXT REFERENCES organizations (id),
    team_id    TEXT,
    policy     TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    revoked_at TIMESTAMP,
    FOREIGN KEY (team_id, org_id) REFERENCES teams (id, org_id),
    CHECK (team_id IS NULL OR org_id IS NOT NULL)
);
CREATE INDEX IF NOT EXISTS api_keys_org ON api_keys (org_id, team_id);

CREATE TABLE IF NOT EXISTS vendor_keys (
    key_id      TEXT NOT NULL REFERENCES api_keys (id),
    vendor      TEXT NOT NULL,
    sealed      BLOB NOT NULL,
    fingerprint TEXT NOT NULL,
    updated_at  TIMESTAMP NOT NULL,
    PRIMARY KEY (key_id, vendor)
);

CREATE TABLE IF NOT EXISTS models (
    id   TEXT NOT NULL PRIMARY KEY,
    spec TEXT NOT NULL
);

-- The ordinal keeps the order in which rules of one priority were given.
CREATE TABLE IF NOT EXISTS rules (
    ordinal  INTEGER PRIMARY KEY,
    priority INTEGER NOT NULL,
    spec     TEXT NOT NULL
);
