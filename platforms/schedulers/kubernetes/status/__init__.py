"""The verdict on a job: what became of it, judged from what was seen of it. Nothing here asks the cluster.

judge         the verdict, with a table of what decides; the way in
observation   what one look at the cluster showed, and the same read as a JobView
failures      why a job failed: which pod failed first, and what the job's own object reports
wait_reasons  why a pod waits, or what is wrong with it while it runs
exits         why a pod ended or vanished
pods, events, kinds, kueue    read pods, events, objects that make pods, and Kueue's Workloads
reasons       tables: what each reason of Kubernetes and Kueue means
"""
