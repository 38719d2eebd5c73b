"""The manifest of a job: rendered from its JobSpec without asking the cluster, read again, and checked.

render        a JobSpec and a platform -> the text that is submitted; the way in
sources       the objects as they were written: by the test, for the platform, or in k8s_templates/
templating    fills placeholders; `placeholders` has their values, `launch` the command line among them
documents     YAML with the line of every key
policy        checks manifests against a site's rules; `lint_rules` are those that hold anywhere
"""
