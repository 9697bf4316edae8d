CREATE TABLE about (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE images (
  digest TEXT PRIMARY KEY, suffix TEXT NOT NULL, patient TEXT NOT NULL, kept_at TEXT NOT NULL, content BLOB NOT NULL
) STRICT;
CREATE TABLE reviews (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  image TEXT NOT NULL REFERENCES images (digest),
  frame INTEGER,
  reviewer TEXT NOT NULL,
  at TEXT NOT NULL,
  weights TEXT NOT NULL,
  preparation TEXT NOT NULL,
  said TEXT NOT NULL,
  verdict TEXT NOT NULL CHECK (verdict IN ('agree', 'disagree')),
  label TEXT,
  concepts TEXT NOT NULL,
  comment TEXT NOT NULL,
  marks TEXT NOT NULL
) STRICT;
CREATE INDEX reviews_of_image ON reviews (image, frame);
