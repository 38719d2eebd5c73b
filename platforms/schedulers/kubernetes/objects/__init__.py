"""Objects of a cluster, read as data. Everything else of this package stands on it.

fields         read fields that may be missing
pod_templates  find the pod templates of an object, and the object that makes the pods
labels         the labels and names of our own objects
pod_history    what earlier observations of a pod showed
capacity       what nodes and quotas have room for, and what a job requests
"""
