-- No limit refers to another table: it stays when a key or a model goes, and holds again when a model comes back. A star
-- stands for every subject, user or model.
CREATE TABLE IF NOT EXISTS spend_limits (
    subject_type   TEXT NOT NULL,
    subject_id     TEXT NOT NULL,
    period         TEXT NOT NULL,
    limit_nano_usd INTEGER NOT NULL,
    PRIMARY KEY (subject_type, subject_id, period)
);

CREATE TABLE IF NOT EXISTS user_rate_limits (
    user_id   TEXT NOT NULL,
    model_id  TEXT NOT NULL,
    rpm       INTEGER NOT NULL,
    rpm_burst INTEGER NOT NULL,
    PRIMARY KEY (user_id, model_id)
);
