listed="$(mktemp)"
python - > "$listed" <<'END'
import tomllib
with open("pyproject.toml", "rb") as file:
    read = tomllib.load(file)
listed = read.get("project", {}).get("dependencies", []) + read.get("dependency-groups", {}).get("dev", [])
print(*(each for each in listed if isinstance(each, str)), sep="\n")
END
python -m pip install --requirement "$listed"@words@
